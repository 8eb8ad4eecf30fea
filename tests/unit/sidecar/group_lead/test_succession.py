"""The members that a coordinator elects next are known beforehand."""

import pytest

from trimtab.sidecar.group_lead.succession import can_advance, hash_string, list_members_ahead


@pytest.mark.parametrize(
    ("text", "code"), [("", 0), ("abc", 96354), ("polygenelubricants", 2**31), ("é", 233)]
)
def test_hashes_are_javas(text: str, code: int) -> None:
    """Buckets are computed from String.hashCode."""
    assert hash_string(text) == code


def test_the_members_of_lower_buckets_are_elected_before() -> None:
    """Those of the same bucket, too: they are older."""
    assert not list_members_ahead("a", [])
    assert not list_members_ahead("a", ["b", "c"])  # hashes 97, 98, 99
    assert list_members_ahead("c", ["a", "b", "d"]) == {"a", "b"}
    assert list_members_ahead("q", ["a", "b"]) == {"a", "b"}  # 113: bucket 1 of 16, as "a", but 17 of 32


def test_new_ids_are_tried_while_they_can_help() -> None:
    """Nobody comes before a member of the first bucket."""
    assert can_advance("b", ["a"])
    assert not can_advance("a", ["b"])
    assert not can_advance("a", ["b", "p"])  # 112: bucket 0 of 16
    assert can_advance("c", ["b", "p"])


def test_a_table_grows_with_its_members() -> None:
    """Twelve members, with this one and the leader, are in 16 buckets, thirteen in 32."""
    others = [chr(0x100 + 17 + n) for n in range(11)]  # buckets 17 to 27 of 32 and 64, 1 to 11 of 16
    assert list_members_ahead("\u010c", others[:10])  # 268: bucket 12 of 16 and of 32
    assert not list_members_ahead("\u010c", others)
