"""Step 5, large neighbourhood search: take a few consumers apart, put them together again.

The few are around a moved partition, or roomy. What they held is inserted again, by falling weight
with some seeded noise, where the objective rises least. The outcome is kept if it is no worse. Bins
of more than `LOOSE` / 2 items on average are left alone: what fits there is fine-grained enough.
"""

from trimtab.assignor.heuristics.steady.bins cimport Bins

cdef enum:
    FEWEST = 3
    MOST = 8
    LOOSE = 512  # partitions in hand at once
    LOOKS = 64
    WORK = 60000  # partitions inserted; more do not pay within a rebalance
cdef double GAIN = 1e-9
cdef double NOISE = 0.3  # of a weight, in the order of insertion
cdef double JITTER = 0.06  # consumers, in the price of a place
cdef double SNUG = 0.05  # consumers: what a whole consumer of room left over counts
cdef double ANY = 0.3  # how likely a full bin is chosen, beside a roomy one


cdef struct Hand:
    unsigned long long state  # of the generator (xorshift64)
    int bins
    int items
    int bin[MOST]
    int item[LOOSE]
    double key[LOOSE]


def search(Bins bins, int tries, unsigned long long seed):
    """Try `tries` times; deterministic in the seed."""
    cdef Hand hand
    cdef double before
    cdef int work = 0
    hand.state = 88172645463325252ULL + seed * 2654435761ULL
    if bins.items == 0 or 2 * bins.items > LOOSE * bins.top:
        return
    for _ in range(tries):
        _choose(bins, &hand)
        if hand.bins < 2:
            continue
        work += hand.items
        if work > WORK:
            break
        before = bins.value
        bins.mark()
        _take_apart(bins, &hand)
        if _put_together(bins, &hand) and bins.value <= before + GAIN:
            bins.keep()
        else:
            bins.undo()


cdef inline unsigned int _draw(Hand *hand) noexcept nogil:
    hand.state ^= hand.state << 13
    hand.state ^= hand.state >> 7
    hand.state ^= hand.state << 17
    return <unsigned int>(hand.state >> 32)


cdef inline double _unit(Hand *hand) noexcept nogil:
    return _draw(hand) / 4294967296.0


cdef void _choose(Bins bins, Hand *hand) noexcept nogil:
    """Choose the bins: those of a moved item, if one is found, then roomy ones."""
    cdef int size = FEWEST + _draw(hand) % (MOST - FEWEST + 1)
    cdef int item, number
    cdef double room
    hand.bins = hand.items = 0
    for _ in range(8):
        item = _draw(hand) % bins.items
        if bins.away(item, bins.bin[item]):
            _add(bins, hand, bins.bin[item])
            _add(bins, hand, bins.home[item])
            break
    for _ in range(LOOKS):
        if hand.bins >= size:
            break
        number = _draw(hand) % bins.top
        room = 1.0 - bins.load[number] / bins.capacity[number]
        if _unit(hand) < ANY + (1.0 - ANY) * 3.0 * room:
            _add(bins, hand, number)


cdef void _add(Bins bins, Hand *hand, int number) noexcept nogil:
    """Add an open bin that is not chosen yet."""
    cdef int i
    if bins.count[number] == 0 or hand.items + bins.count[number] > LOOSE:
        return
    for i in range(hand.bins):
        if hand.bin[i] == number:
            return
    hand.bin[hand.bins] = number
    hand.bins += 1
    hand.items += bins.count[number]


cdef void _take_apart(Bins bins, Hand *hand) noexcept nogil:
    """Make the chosen bins' items loose, and sort them by falling noisy weight."""
    cdef int i, item, at
    cdef double key
    hand.items = 0
    for i in range(hand.bins):
        while bins.head[hand.bin[i]] >= 0:
            item = bins.head[hand.bin[i]]
            bins.take(item)
            key = bins.weight[item] * (1.0 + NOISE * (_unit(hand) - 0.5))
            at = hand.items
            while at > 0 and hand.key[at - 1] < key:
                hand.key[at], hand.item[at] = hand.key[at - 1], hand.item[at - 1]
                at -= 1
            hand.key[at], hand.item[at] = key, item
            hand.items += 1


cdef bint _put_together(Bins bins, Hand *hand) noexcept nogil:
    """Insert what is in hand; False if something found no place."""
    cdef int i, number
    for i in range(hand.items):
        number = _place(bins, hand, hand.item[i])
        if number < 0:
            return False
        bins.put(hand.item[i], number)
    return True


cdef int _place(Bins bins, Hand *hand, int item) noexcept nogil:
    """Return the chosen bin with room where the objective rises least, or a closed one."""
    cdef int i, number, best = -1
    cdef double price, least = 1e300
    for i in range(hand.bins):
        number = hand.bin[i]
        if bins.count[number] and bins.has_room(item, number):
            price = bins.price(item, number) + JITTER * _unit(hand)
            price -= SNUG * bins.load[number] / bins.capacity[number]
            if price < least:
                least, best = price, number
    if best >= 0 and least + SNUG <= bins.bin_cost:
        return best
    number = _closed(bins, hand, item, best < 0)
    if number >= 0 and (best < 0 or bins.price(item, number) < least):
        return number
    return best


cdef int _closed(Bins bins, Hand *hand, int item, bint any_bin) noexcept nogil:
    """Return home if it is closed, else a chosen bin that is, else, if `any_bin`, any; -1: none."""
    cdef int i, number
    cdef int home = bins.home[item]
    if home >= 0 and bins.count[home] == 0 and bins.reads(item, home):
        if bins.weight[item] <= bins.capacity[home]:
            return home
    for i in range(hand.bins):
        number = hand.bin[i]
        if bins.count[number] == 0 and bins.reads(item, number):
            if bins.weight[item] <= bins.capacity[number]:
                return number
    return bins.free_bin(item) if any_bin else -1
