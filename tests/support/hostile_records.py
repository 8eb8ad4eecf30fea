"""Records that no client of a queue should write, and that stop none."""

from typing import Final


class BinaryName(str):
    """The name of a header in bytes that are not UTF-8, as producers in Go, C and Rust can write it."""

    __slots__ = ()

    def encode(self, *_: object, **__: object) -> bytes:
        return b"\xff" + super().encode()


# No worker or tracker writes these; a tracker skips them.
BAD_MARKERS: Final[list[bytes | None]] = [
    None,
    b"\xff",
    b"[" * 100_000,
    b'{"v":2,"k":"start","r":[[0,0]]}',
    b'{"v":1,"k":"start","r":[[0,1e400]]}',
    b'{"v":1,"k":"start","r":[[-5,0]],"ms":-1}',
    b'{"v":1,"k":"start","r":[[0,1000000000000000000]],"n":1}',
    b'{"v":1,"k":"end","r":[[-1,1000]]}',
    b'{"v":1,"k":"tick","r":[],"ms":1%b}' % (b"0" * 5000),
]

# Headers of a first delivery: unreadable, of another group, with a count of thousands of digits.
BAD_HEADERS: Final[list[tuple[str, bytes]]] = [
    (BinaryName("x"), b""),
    ("trimtab.group", b"another"),
    ("trimtab.delivery", b"9" * 5000),
    ("trimtab.origin", b"elsewhere/0/" + b"1" * 5000),
]
