"""Text that others chose, made safe to print: client ids, names of groups and hosts, errors with such names.

A control character could move the cursor, change colours, hide text or begin a line that looks like one of
Trimtab's. Each becomes a visible escape, as in a Python string.
"""

import re
from typing import Final

# C0, DEL and C1; line and paragraph separators; marks that reverse the direction of text; lone surrogates.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escape_control_characters(text: str) -> str:
    """Return a text as one printable line."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
