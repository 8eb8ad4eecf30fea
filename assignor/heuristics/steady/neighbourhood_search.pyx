"""Step 5, large neighbourhood search: empty a few consumers and fill them again.

They are the two consumers of a moved partition, and roomy ones. Their partitions are inserted again,
by falling weight with seeded noise, where the objective rises least. The result is kept if it is no
worse.
"""

from trimtab.assignor.heuristics.steady.bins cimport Bins

cdef enum:
    MIN_BINS = 3
    MAX_BINS = 8
    MAX_LOOSE_ITEMS = 512  # partitions removed at once
    MAX_BIN_DRAWS = 64
    INSERTION_BUDGET = 60000  # partitions inserted; more is not worth a rebalance's time
cdef double MIN_GAIN = 1e-9
cdef double ORDER_NOISE = 0.3  # of a weight, in the order of insertion
cdef double PRICE_NOISE = 0.06  # consumers, in the cost of an insertion
cdef double FULLNESS_BONUS = 0.05  # consumers, per whole consumer of room left
cdef double FULL_BIN_CHANCE = 0.3  # chance to choose a full bin


cdef struct Neighbourhood:
    unsigned long long state  # of the generator (xorshift64)
    int bins
    int items
    int bin[MAX_BINS]
    int item[MAX_LOOSE_ITEMS]
    double key[MAX_LOOSE_ITEMS]


def search_neighbourhoods(Bins bins, int tries, unsigned long long seed):
    """Run `tries` searches; deterministic in the seed."""
    cdef Neighbourhood chosen
    cdef double before
    cdef int work = 0
    chosen.state = 88172645463325252ULL + seed * 2654435761ULL
    # Bins of many small items are packed finely enough already.
    if bins.items == 0 or 2 * bins.items > MAX_LOOSE_ITEMS * bins.open_end:
        return
    for _ in range(tries):
        _choose_bins(bins, &chosen)
        if chosen.bins < 2:
            continue
        work += chosen.items
        if work > INSERTION_BUDGET:
            break
        before = bins.objective
        bins.begin_change()
        _remove_items(bins, &chosen)
        if _reinsert_items(bins, &chosen) and bins.objective <= before + MIN_GAIN:
            bins.keep_change()
        else:
            bins.undo_change()


cdef inline unsigned int _draw_random(Neighbourhood *chosen) noexcept nogil:
    chosen.state ^= chosen.state << 13
    chosen.state ^= chosen.state >> 7
    chosen.state ^= chosen.state << 17
    return <unsigned int>(chosen.state >> 32)


cdef inline double _draw_unit(Neighbourhood *chosen) noexcept nogil:
    return _draw_random(chosen) / 4294967296.0


cdef void _choose_bins(Bins bins, Neighbourhood *chosen) noexcept nogil:
    """Choose the two bins of a moved item, if one is drawn, then roomy ones."""
    # A moved partition's two bins come first: there a move may be saved.
    cdef int size = MIN_BINS + _draw_random(chosen) % (MAX_BINS - MIN_BINS + 1)
    cdef int item, number
    cdef double room
    chosen.bins = chosen.items = 0
    for _ in range(8):
        item = _draw_random(chosen) % bins.items
        if bins.is_moved(item, bins.bin[item]):
            _add_bin(bins, chosen, bins.bin[item])
            _add_bin(bins, chosen, bins.home[item])
            break
    for _ in range(MAX_BIN_DRAWS):
        if chosen.bins >= size:
            break
        number = _draw_random(chosen) % bins.open_end
        room = 1.0 - bins.load[number] / bins.capacity[number]
        if _draw_unit(chosen) < FULL_BIN_CHANCE + (1.0 - FULL_BIN_CHANCE) * 3.0 * room:
            _add_bin(bins, chosen, number)


cdef void _add_bin(Bins bins, Neighbourhood *chosen, int number) noexcept nogil:
    """Add an open bin that is not chosen yet."""
    cdef int i
    if bins.count[number] == 0 or chosen.items + bins.count[number] > MAX_LOOSE_ITEMS:
        return
    for i in range(chosen.bins):
        if chosen.bin[i] == number:
            return
    chosen.bin[chosen.bins] = number
    chosen.bins += 1
    chosen.items += bins.count[number]


cdef void _remove_items(Bins bins, Neighbourhood *chosen) noexcept nogil:
    """Remove the items of the chosen bins, sorted by falling noisy weight."""
    cdef int i, item, at
    cdef double key
    chosen.items = 0
    for i in range(chosen.bins):
        item = bins.head[chosen.bin[i]]
        while item >= 0:
            key = bins.weight[item] * (1.0 + ORDER_NOISE * (_draw_unit(chosen) - 0.5))
            at = chosen.items
            while at > 0 and chosen.key[at - 1] < key:
                chosen.key[at], chosen.item[at] = chosen.key[at - 1], chosen.item[at - 1]
                at -= 1
            chosen.key[at], chosen.item[at] = key, item
            chosen.items += 1
            item = bins.next[item]
        bins.empty_bin(chosen.bin[i])


cdef bint _reinsert_items(Bins bins, Neighbourhood *chosen) noexcept nogil:
    """Insert the removed items; return False if one fits nowhere."""
    cdef int i, number
    for i in range(chosen.items):
        number = _find_reinsertion_bin(bins, chosen, chosen.item[i])
        if number < 0:
            return False
        bins.place_item(chosen.item[i], number)
    return True


cdef int _find_reinsertion_bin(Bins bins, Neighbourhood *chosen, int item) noexcept nogil:
    """Return the chosen bin with room of the least cost, or a closed one, or -1."""
    cdef int i, number, best = -1
    cdef double price, noise, bonus, least = 1e300
    for i in range(chosen.bins):
        number = chosen.bin[i]
        if bins.count[number] and bins.has_room(item, number):
            noise = PRICE_NOISE * _draw_unit(chosen)
            bonus = FULLNESS_BONUS * bins.load[number] / bins.capacity[number]
            if bins.least_insertion_cost(item, number) + noise - bonus >= least:
                continue  # without the expected eviction, which takes most of the time
            price = bins.insertion_cost(item, number) + noise - bonus
            if price < least:
                least, best = price, number
    # A closed bin costs at least `bin_cost`: no need to look for one.
    if best >= 0 and least + FULLNESS_BONUS <= bins.bin_cost:
        return best
    number = _find_closed_bin(bins, chosen, item, best < 0)
    if number >= 0 and (best < 0 or bins.insertion_cost(item, number) < least):
        return number
    return best


cdef int _find_closed_bin(Bins bins, Neighbourhood *chosen, int item, bint any_bin) noexcept nogil:
    """Return a closed bin: home, else a chosen one, else, if `any_bin`, any; or -1."""
    cdef int i, number
    cdef int home = bins.home[item]
    if home >= 0 and bins.count[home] == 0 and bins.can_read(item, home):
        if bins.weight[item] <= bins.capacity[home]:
            return home
    for i in range(chosen.bins):
        number = chosen.bin[i]
        if bins.count[number] == 0 and bins.can_read(item, number):
            if bins.weight[item] <= bins.capacity[number]:
                return number
    return bins.find_closed_bin(item) if any_bin else -1
