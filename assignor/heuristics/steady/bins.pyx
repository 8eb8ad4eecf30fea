"""The bins of one decision, with an incrementally updated objective (`objective.pxd`).

1. Bins 0..members-1 are the members; later ones may be added and read every topic.
2. A bin holds what fits, or one partition of any size.
3. Every change goes through `place_item`, `remove_item` and `empty_bin`. Between `begin_change` and
   `keep_change` changes are recorded, and `undo_change` restores placement, loads and objective, to
   the bit, but not the order of a bin's items.
"""

cimport cython
from libc.math cimport sqrt

import numpy as np

from trimtab.assignor.heuristics.steady.objective cimport mean_evicted, mean_overflow

CHANGE = np.dtype(
    [("item", "i4"), ("bin", "i4")]
    + [(name, "f8") for name in ("objective", "load", "risk", "drift", "variance")],
    align=True,
)
CAPACITY_TOLERANCE = 1e-9  # sums of floats are not exact
cdef double MIN_GAIN = 1e-9  # consumers; smaller gains are rounding errors
cdef double SAFE_DEVIATIONS = 4.0  # deviations of slack beyond which a bin is safe
cdef enum:
    MEAN_OVERFLOW_COUNT = 24  # partitions from which on some subset matches any overflow


@cython.final
cdef class Bins:
    """Placement of items during a decision; starts with all items loose."""

    def __init__(
        self, problem, forecast, bin_cost, move_cost, eviction_cost, cross_rack=None
    ):
        """Build from a problem, a forecast, and the costs of a bin, of each move, per evicted byte/s.

        With `cross_rack` the objective includes cross-rack costs.
        """
        cdef int added = 0 if problem.new_member_capacity is None else len(problem.weight)
        self.items, self.members = len(problem.weight), len(problem.capacity)
        self.total = self.members + added
        self.weight = np.ascontiguousarray(problem.weight, dtype=np.float64)
        self.drift = np.ascontiguousarray(forecast.drift, dtype=np.float64)
        self.variance = np.ascontiguousarray(forecast.variance, dtype=np.float64)
        self.home = np.ascontiguousarray(problem.owner, dtype=np.int32)
        self.topic = np.ascontiguousarray(problem.topic, dtype=np.int32)
        spare = np.full(added, problem.new_member_capacity or 0.0)
        self.capacity = np.concatenate([problem.capacity, spare]) * (1 + CAPACITY_TOLERANCE)
        self.all_read = bool(problem.subscribed.all())
        self.readers = np.ascontiguousarray(problem.subscribed, dtype=np.uint8)
        self.bin_cost, self.eviction_cost = bin_cost, eviction_cost
        self.move_cost = np.ascontiguousarray(move_cost, dtype=np.float64)
        self.has_rack_costs = cross_rack is not None
        if cross_rack is not None:
            self.rack_of_bin = cross_rack.rack_of_bin
            self.cross_rack_cost = cross_rack.cross_rack_cost
        self.load, self.risk = np.zeros(self.total), np.zeros(self.total)
        self.load_drift, self.load_variance = np.zeros(self.total), np.zeros(self.total)
        self.bin = np.full(self.items, -1, dtype=np.int32)
        self.next, self.prev = np.array(self.bin), np.array(self.bin)
        self.head = np.full(self.total, -1, dtype=np.int32)
        self.count = np.zeros(self.total, dtype=np.int32)
        self.journal = np.zeros(4096, dtype=CHANGE)

    def copy_placement(self):
        """Return a copy of each item's bin, shape (P,); -1 for a loose item."""
        return np.array(self.bin, dtype=np.int32)

    def copy_bins(self):
        """Return bins of the same problem with the same placement."""
        cdef Bins copied = Bins.__new__(Bins)
        copied.items, copied.members, copied.total = self.items, self.members, self.total
        copied.open_end, copied.objective = self.open_end, self.objective
        copied.bin_cost, copied.eviction_cost = self.bin_cost, self.eviction_cost
        copied.weight, copied.drift, copied.variance = self.weight, self.drift, self.variance
        copied.move_cost, copied.capacity = self.move_cost, self.capacity
        copied.home, copied.topic = self.home, self.topic
        copied.all_read, copied.readers = self.all_read, self.readers
        copied.has_rack_costs = self.has_rack_costs
        if self.has_rack_costs:
            copied.rack_of_bin, copied.cross_rack_cost = self.rack_of_bin, self.cross_rack_cost
        copied.load, copied.risk = self.load.copy(), self.risk.copy()
        copied.load_drift, copied.load_variance = self.load_drift.copy(), self.load_variance.copy()
        copied.bin, copied.next, copied.prev = self.bin.copy(), self.next.copy(), self.prev.copy()
        copied.head, copied.count = self.head.copy(), self.count.copy()
        copied.journal = np.empty(len(self.journal), dtype=CHANGE)  # nothing of it is read before it is written
        return copied

    def reset_placement(self, const int[::1] placed):
        """Place every item as in `placed` (P,); -1 leaves it loose."""
        cdef int item
        for item in range(self.items):
            if self.bin[item] >= 0:
                self.remove_item(item)
        self.objective = 0.0
        for item in range(self.items):
            if placed[item] >= 0:
                self.place_item(item, placed[item])

    cdef bint can_read(self, int item, int number) noexcept nogil:
        return self.all_read or number >= self.members or self.readers[self.topic[item], number]

    cdef bint has_room(self, int item, int number) noexcept nogil:
        """Return whether the bin reads the item and has room for it."""
        cdef double after = self.load[number] + self.weight[item]
        return after <= self.capacity[number] and self.can_read(item, number)

    cdef bint is_moved(self, int item, int number) noexcept nogil:
        """Return whether the item would be moved in this bin."""
        return self.home[item] >= 0 and self.home[item] != number

    cdef double item_cost(self, int item, int number) noexcept nogil:
        """Return the move and cross-rack cost of the item in a bin."""
        cdef double cost = self.move_cost[item] if self.is_moved(item, number) else 0.0
        if self.has_rack_costs:
            cost += self.cross_rack_cost[item, self.rack_of_bin[number]]
        return cost

    cdef double expected_eviction(self, int number, int joins, int leaves) noexcept nogil:
        """Return the cost of the load that the bin is expected to evict at the next tick.

        `joins` and `leaves` are items to add or remove for this, -1 for none.
        """
        if self.eviction_cost == 0:
            return 0.0
        cdef double load = self.load[number] + self.load_drift[number]
        cdef double variance = self.load_variance[number]
        cdef int count = self.count[number]
        cdef double slack, deviation
        cdef double sizes[MEAN_OVERFLOW_COUNT]
        if joins >= 0:
            count += 1
            load += self.weight[joins] + self.drift[joins]
            variance += self.variance[joins]
        if leaves >= 0:
            count -= 1
            load -= self.weight[leaves] + self.drift[leaves]
            variance -= self.variance[leaves]
        if count < 2:
            return 0.0
        slack = self.capacity[number] - load
        if variance <= 1e-12 * self.capacity[number] * self.capacity[number]:
            return -self.eviction_cost * slack if slack < 0 else 0.0
        deviation = sqrt(variance)
        if slack > SAFE_DEVIATIONS * deviation:
            return 0.0
        if count >= MEAN_OVERFLOW_COUNT:
            return self.eviction_cost * mean_overflow(slack, deviation)
        count = self._sort_overflow_sizes(number, joins, leaves, (slack + 0.5 * deviation) / variance, sizes)
        return self.eviction_cost * mean_evicted(sizes, count, slack, deviation)

    cdef int _sort_overflow_sizes(
        self, int number, int joins, int leaves, double share, double *sizes
    ) noexcept nogil:
        """Sort the partitions' weights in case of an overflow, and return their number."""
        # Overflow means growth: each partition has grown by its share of the variance.
        cdef int count = 0
        cdef int item = self.head[number] if joins < 0 else joins
        cdef int at
        cdef double size
        share = share if share > 0 else 0.0
        while item >= 0:
            if item != leaves:
                size = self.weight[item] + self.drift[item] + self.variance[item] * share
                at = count
                while at > 0 and sizes[at - 1] > size:
                    sizes[at] = sizes[at - 1]
                    at -= 1
                sizes[at] = size
                count += 1
            item = self.head[number] if item == joins else self.next[item]
        return count

    cdef double insertion_cost(self, int item, int number) noexcept nogil:
        """Return the increase of the objective if the loose item is placed in the bin."""
        cdef double price = self.item_cost(item, number)
        if self.count[number] == 0:
            return price + self.bin_cost
        return price + self.expected_eviction(number, item, -1) - self.risk[number]

    cdef double least_insertion_cost(self, int item, int number) noexcept nogil:
        """Return a cost that `insertion_cost` never falls below: that without an expected eviction."""
        cdef double price = self.item_cost(item, number)
        return price + self.bin_cost if self.count[number] == 0 else price - self.risk[number]

    cdef double removal_gain(self, int item) noexcept nogil:
        """Return the decrease of the objective if the item is removed."""
        cdef int number = self.bin[item]
        cdef double relief = self.item_cost(item, number)
        if self.count[number] == 1:
            return relief + self.bin_cost
        return relief + self.risk[number] - self.expected_eviction(number, -1, item)

    cdef void place_item(self, int item, int number) noexcept nogil:
        """Place a loose item."""
        self._record_change(item, number)
        if self.count[number] == 0:
            self.objective += self.bin_cost
            self.load[number] = self.load_drift[number] = self.load_variance[number] = 0.0
            self.open_end = max(self.open_end, number + 1)
        self.objective += self.item_cost(item, number)
        self.load[number] += self.weight[item]
        self._link_item(item, number)
        if self.eviction_cost:
            self.load_drift[number] += self.drift[item]
            self.load_variance[number] += self.variance[item]
            self._update_risk(number)

    cdef void remove_item(self, int item) noexcept nogil:
        """Make an item loose."""
        cdef int number = self.bin[item]
        self._record_change(item, number)
        self._unlink_item(item, number)
        if self.count[number] == 0:
            self.objective -= self.bin_cost
        self.objective -= self.item_cost(item, number)
        self.load[number] -= self.weight[item]
        if self.eviction_cost:
            self.load_drift[number] -= self.drift[item]
            self.load_variance[number] -= self.variance[item]
            self._update_risk(number)

    cdef bint swap_if_better(self, int item, int other) noexcept nogil:
        """Swap two items if that lowers the objective; return whether it does."""
        cdef int source = self.bin[item], target = self.bin[other]
        cdef double before = self.objective
        self.begin_change()
        self.remove_item(item)
        self.remove_item(other)
        self.place_item(item, target)
        self.place_item(other, source)
        if self.objective < before - MIN_GAIN:
            self.keep_change()
            return True
        self.undo_change()
        return False

    cdef void empty_bin(self, int number) noexcept nogil:
        """Make every item of the bin loose."""
        cdef int item = self.head[number]
        if item < 0:
            return
        while item >= 0:
            self._record_change(item, number)
            self._unlink_item(item, number)
            self.objective -= self.item_cost(item, number)
            item = self.head[number]
        self.objective -= self.bin_cost + self.risk[number]
        self.load[number] = self.load_drift[number] = self.load_variance[number] = self.risk[number] = 0.0

    cdef int find_closed_bin(self, int item) noexcept nogil:
        """Return the closed bin to open, home or the lowest, or -1; one that holds the item first."""
        cdef int home = self.home[item]
        cdef int number, small = -1
        if home >= 0 and self.count[home] == 0 and self.can_read(item, home):
            if self.weight[item] <= self.capacity[home]:
                return home
            small = home
        for number in range(self.total):
            if self.count[number] == 0 and self.can_read(item, number):
                if self.weight[item] <= self.capacity[number]:
                    return number
                if small < 0:
                    small = number
        return small

    cdef void begin_change(self) noexcept nogil:
        """Begin recording changes."""
        self.journalling = True
        self.journal_length = 0

    cdef void keep_change(self) noexcept nogil:
        """Keep the changes since `begin_change`."""
        self.journalling = False

    cdef void undo_change(self) noexcept nogil:
        """Revert the changes since `begin_change`."""
        cdef int step
        cdef Change before
        self.journalling = False
        for step in range(self.journal_length - 1, -1, -1):
            before = self.journal[step]
            if self.bin[before.item] < 0:
                self._link_item(before.item, before.bin)
            else:
                self._unlink_item(before.item, before.bin)
            self.objective = before.objective
            self.load[before.bin], self.risk[before.bin] = before.load, before.risk
            self.load_drift[before.bin], self.load_variance[before.bin] = before.drift, before.variance

    cdef void _link_item(self, int item, int number) noexcept nogil:
        cdef int first = self.head[number]
        self.next[item], self.prev[item] = first, -1
        if first >= 0:
            self.prev[first] = item
        self.head[number] = item
        self.bin[item] = number
        self.count[number] += 1

    cdef void _unlink_item(self, int item, int number) noexcept nogil:
        cdef int before = self.prev[item], after = self.next[item]
        if before >= 0:
            self.next[before] = after
        else:
            self.head[number] = after
        if after >= 0:
            self.prev[after] = before
        self.bin[item] = -1
        self.count[number] -= 1

    cdef void _update_risk(self, int number) noexcept nogil:
        """Update the bin's expected eviction cost."""
        cdef double risk = self.expected_eviction(number, -1, -1)
        self.objective += risk - self.risk[number]
        self.risk[number] = risk

    cdef void _record_change(self, int item, int number) noexcept nogil:
        """Record the values before the item enters or leaves the bin."""
        if not self.journalling:
            return
        if self.journal_length == self.journal.shape[0]:
            with gil:
                self.journal = np.concatenate([self.journal, self.journal])
        if self.journal_length == self.journal.shape[0]:
            return  # without memory, which Python has reported
        cdef Change *before = &self.journal[self.journal_length]
        before.item, before.bin, before.objective = item, number, self.objective
        before.load, before.risk = self.load[number], self.risk[number]
        before.drift, before.variance = self.load_drift[number], self.load_variance[number]
        self.journal_length += 1
