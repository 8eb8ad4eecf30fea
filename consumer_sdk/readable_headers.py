"""Repairs messages whose header names are not UTF-8, which producers in Go, C or Rust can write.

confluent-kafka (2.16) decodes the names. For such a message the first `Message.headers()` raises
SystemError; the next ones return tuples with a null pointer in place of the name, and whatever
reads that name ends the process.
"""

import gc
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from operator import methodcaller
from typing import Any, Final

from confluent_kafka import Message

# Not `raw.headers()`: once the interpreter has specialized that call, it takes the damaged list for a
# result, and the pending error comes out of some later call.
_read_headers: Final[Any] = methodcaller("headers")
_DECODE_ERRORS: Final = (SystemError, UnicodeDecodeError)


def keep_readable_headers(raw_messages: Sequence[Message]) -> Sequence[Message]:
    """Remove the headers whose names are not UTF-8; return the messages that had any."""
    try:
        deque(map(_read_headers, raw_messages), maxlen=0)
    except _DECODE_ERRORS:
        return [raw for raw in raw_messages if _remove_unreadable(raw)]
    return ()


def _remove_unreadable(raw: Message) -> bool:
    pairs: list[Any] = [()]  # counts as unreadable, for a version that raises each time
    with suppress(*_DECODE_ERRORS):
        _read_headers(raw)
    with suppress(*_DECODE_ERRORS):
        # The garbage collector's view omits null pointers, and begins at the end of a list.
        pairs = gc.get_referents(_read_headers(raw))[::-1]
    readable = [pair for pair in pairs if len(gc.get_referents(pair)) == 2]  # noqa: PLR2004 - name and value
    is_damaged = len(readable) < len(pairs)
    if is_damaged:
        raw.set_headers(readable)
    return is_damaged
