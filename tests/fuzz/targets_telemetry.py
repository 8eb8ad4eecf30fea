"""Headers by which a record names its producer's trace."""

from itertools import zip_longest
from typing import Final

from trimtab.common.telemetry.spans import choose_producers, parse_context

PARENT: Final = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SEEDS: Final = {
    "read_contexts": [
        PARENT + b"\0vendor=a:1,other=b",
        PARENT + b"\0\0" + PARENT.replace(b"-01", b"-00") + b"\0x=" + b"y" * 600,
        b"ff-" + b"0" * 32 + b"-" + b"0" * 16 + b"-zz\0=,=",
    ]
}


def read_contexts(data: bytes) -> None:
    """Read parent, state, parent, state, …, separated by zero bytes, as those of a batch's records."""
    parts = data.split(b"\0")
    parents = parts[::2]
    chosen = choose_producers(parents)
    assert len(chosen) <= len(parents)
    assert all(parents[index] for index in chosen)
    for parent, state in zip_longest(parents[:50], parts[1:100:2]):
        context = parse_context(parent, state)
        assert context is None or context.is_valid
