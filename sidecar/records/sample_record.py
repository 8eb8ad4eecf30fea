"""Records of loads and owners in the decision topic: a sidecar that starts shows those of the last hour.

1. A group has a ring of keys, a slot for each interval of the last `RECORDED_SPAN_S`.
2. A record has what decision records lack: the load, owner and write rate of each partition at one time.
   Its decision is the one in force at that time.
3. Arrays are bytes as in `web.sample`, in Base64, in the order of `topics`; owners are indices of
   `consumers`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from trimtab.common.control_topics.number_ranges import Count, PositiveFigure, Timestamp
from trimtab.common.control_topics.versioned_json import decode_control_value, encode_control_value
from trimtab.sidecar.decision.decision import DecisionMetrics

RECORDED_SPAN_S: Final = 3600.0
SAMPLE_INTERVAL_S: Final = 60.0  # of one group; many groups share a topic, and have longer ones
SAMPLE_KEY_KIND: Final = "sample"
SEASON_KEY_KIND: Final = "season"
DECISION_KEY_KIND: Final = ""  # its key has none


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """Loads and owners of a group's partitions at one time."""

    group: str
    slot: Count
    time: Timestamp
    capacity: PositiveFigure  # bytes/s of one consumer: loads and rates are parts of it
    metrics: DecisionMetrics
    topics: Mapping[str, tuple[Count, ...]]  # partition numbers
    consumers: tuple[str, ...]
    loads: str
    owners: str
    rates: str

    @property
    def key(self) -> str:
        """Key of the record in the decision topic."""
        return json.dumps([self.group, SAMPLE_KEY_KIND, self.slot])

    def encode(self) -> bytes:
        """Return the record's value."""
        return encode_control_value(asdict(self))

    @classmethod
    def decode(cls, value: bytes) -> "SampleRecord":
        """Read a record's value. Raises InvalidPayloadError."""
        return decode_control_value(cls, value, "sample")


@dataclass(frozen=True, slots=True)
class RecordKey:
    """What a key of the decision topic tells."""

    group: str
    kind: str


def read_record_key(key: str | bytes | None) -> RecordKey | None:
    """Return group and kind of a record, or of a part of one; None for any other key."""
    for _ in range(2):  # a part's key holds that of its value
        try:
            named: Any = json.loads(key or b"")
        except (ValueError, TypeError):
            return None
        if not isinstance(named, list) or not named or not isinstance(named[0], str):
            return None
        if not named[0].startswith("["):
            kinds = [kind for kind in (SAMPLE_KEY_KIND, SEASON_KEY_KIND) if kind in named[1:2]]
            return RecordKey(named[0], kinds[0] if kinds else DECISION_KEY_KIND)
        key = named[0]
    return None


def read_key_kind(key: str | bytes | None) -> str:
    """Return the kind of a record; a decision's for any other key."""
    found = read_record_key(key)
    return DECISION_KEY_KIND if found is None else found.kind


def compute_slot(time: float, interval: float) -> int:
    """Return the slot of a sample at this time (rule 1)."""
    return int(time // interval) % max(1, int(RECORDED_SPAN_S // interval))
