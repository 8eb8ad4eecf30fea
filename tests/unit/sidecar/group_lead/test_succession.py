"""The member that a coordinator elects next is known beforehand."""

import pytest

from trimtab.sidecar.group_lead import succession
from trimtab.sidecar.group_lead.succession import is_next_leader


@pytest.mark.parametrize(
    ("text", "code"), [("", 0), ("abc", 96354), ("polygenelubricants", 2**31), ("é", 233)]
)
def test_hashes_are_javas(text: str, code: int) -> None:
    """Buckets are computed from String.hashCode."""
    assert succession.hash_string(text) == code


def test_the_member_in_the_lowest_bucket_is_elected() -> None:
    """In tables of any size that the group may have had."""
    assert is_next_leader("a", [])
    assert is_next_leader("a", ["b", "c"])  # hashes 97, 98, 99
    assert not is_next_leader("b", ["a", "c"])
    assert not is_next_leader("q", ["a"])  # 113 and 97 share a bucket of 16
    assert not is_next_leader("Q", ["b"])  # 81: bucket 1 of 16, but 17 of 32 and 64, where b has 2 and 34
