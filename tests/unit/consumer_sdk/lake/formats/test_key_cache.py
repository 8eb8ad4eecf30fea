"""Memory of the keys that are kept from flush to flush."""

import pyarrow as pa

from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.lake.formats.file_cache import IDLE_TABLE_S
from trimtab.consumer_sdk.lake.formats.key_cache import FileKeys, KeyCache


def make_keys(rows: int) -> FileKeys:
    return FileKeys(rows, pa.table({"id": list(range(rows))}))


SIZE = make_keys(1000).memory_bytes


def test_no_more_is_kept_than_the_limit() -> None:
    """What does not fit is read again with each flush."""
    cache = KeyCache(limit=SIZE * 5 // 2)
    for name in "abc":
        cache.add("t", name, make_keys(1000))
    assert [cache.find("t", name) is not None for name in "abc"] == [True, True, False]
    assert cache.memory_bytes <= SIZE * 5 // 2


def test_a_table_that_needs_little_gets_room_from_a_large_one() -> None:
    """Then no table drops files of the other any more."""
    cache = KeyCache(limit=SIZE * 4)
    for name in "abcd":
        cache.add("large", name, make_keys(1000))
    for name in "abcd":
        cache.add("small", name, make_keys(1000))
    for name in "abcd":
        cache.add("large", name, make_keys(1000))
    kept = {table: sum(cache.find(table, n) is not None for n in "abcd") for table in ("large", "small")}
    assert kept in ({"large": 2, "small": 2}, {"large": 3, "small": 1})
    assert cache.memory_bytes <= SIZE * 4


def test_files_that_a_table_has_lost_are_dropped() -> None:
    """A compaction replaced them."""
    cache = KeyCache()
    for name in "ab":
        cache.add("t", name, make_keys(10))
    cache.add("other", "a", make_keys(10))
    cache.retain("t", {"b", "c"})
    assert (cache.find("t", "a"), cache.find("t", "b"), cache.find("other", "a")) != (None, None, None)
    assert cache.find("t", "a") is None
    assert cache.memory_bytes == 2 * make_keys(10).memory_bytes


def test_what_is_replaced_makes_room_for_its_successor() -> None:
    """A table of deletion vectors that just fit keeps all of them from flush to flush."""
    cache = KeyCache(limit=SIZE * 3)
    for name in "abc":
        cache.add("t", name, make_keys(1000))
    cache.discard("t", {"a", "b", "unknown", None})
    for name in ("a2", "b2"):
        cache.add("t", name, make_keys(1000))
    assert [cache.find("t", name) is not None for name in ("a", "b", "c", "a2", "b2")] == [
        False, False, True, True, True,
    ]  # fmt: skip
    assert cache.memory_bytes == SIZE * 3


class LaterClock(SystemClock):
    """The machine's clock, later by some seconds."""

    later_s = 0.0

    def monotonic(self) -> float:
        return SystemClock.monotonic() + self.later_s


def test_a_table_whose_partitions_were_revoked_leaves_the_cache() -> None:
    """The flushes of other tables drop what nobody has searched for a while."""
    clock = LaterClock()
    cache = KeyCache(clock=clock)
    for table in ("revoked", "written"):
        cache.retain(table, {"a"})
        cache.add(table, "a", make_keys(10))
    clock.later_s = IDLE_TABLE_S - 60
    cache.retain("written", {"a"})
    assert cache.memory_bytes == 2 * make_keys(10).memory_bytes  # a rebalance may give it back
    clock.later_s = IDLE_TABLE_S + 60
    cache.retain("written", {"a"})
    assert cache.find("revoked", "a") is None
    assert cache.find("written", "a") is not None
    assert cache.memory_bytes == make_keys(10).memory_bytes
    cache.add("revoked", "a", make_keys(10))  # of a flush that was slow
    assert cache.find("revoked", "a") is not None
