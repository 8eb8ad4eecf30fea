"""Whether there is anything to read: what the way to zero replicas, and back, goes by.

What is not known is neither: it takes nobody away and starts nobody.
"""

from trimtab.assignor.control import PartitionSpeed
from trimtab.sidecar.observation import Observation


def awake(seen: Observation) -> bool:
    """Tell whether records are known to be written, or to wait."""
    return any(_stirs(speed) for speed in seen.speeds.values())


def idle(seen: Observation) -> bool:
    """Tell whether it is known of every partition that nothing is written and nothing waits."""
    known = all(
        s.bytes_per_s is not None and s.backlog_records is not None for s in seen.speeds.values()
    )
    return bool(seen.speeds) and known and not awake(seen)


def _stirs(speed: PartitionSpeed) -> bool:
    return any((speed.bytes_per_s, speed.records_per_s, speed.backlog_records))
