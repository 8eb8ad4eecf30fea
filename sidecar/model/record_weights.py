"""What loads and capacities count: bytes alone, or records, too."""

from typing import Final, NamedTuple

from trimtab.common.units import format_bytes


class RecordWeights(NamedTuple):
    """What a byte and a record weigh, in bytes."""

    byte: float = 1.0
    record: float = 0.0

    @property
    def counts_records(self) -> bool:
        """Whether loads and capacities are other figures than bytes on the wire."""
        return self != BYTES_ALONE

    def format_unit(self) -> str:
        """Return what is counted, as a part of a sentence."""
        return f"{self.byte:.2g} B for each byte and {format_bytes(self.record)} for each record"


BYTES_ALONE: Final = RecordWeights()
