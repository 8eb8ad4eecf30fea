"""Records of one partition in memory, by offset."""

from dataclasses import dataclass, field

import numpy as np

from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap
from trimtab.consumer_sdk.lake.schema.record_columns import RecordBatch


@dataclass(slots=True)
class PartitionTail:
    """All records of a partition from `first` to before `next`."""

    first: int
    next: int
    batches: list[RecordBatch] = field(default_factory=list[RecordBatch])

    def continues_at(self, offset: int) -> bool:
        """Return whether this holds every record from an offset on, as far as it was read."""
        return self.first <= offset <= self.next

    def add_batch(self, batch: RecordBatch) -> None:
        """Add the next records of the log."""
        self.batches.append(batch)
        self.next = int(batch.column("offset")[-1].as_py()) + 1

    def drop_before(self, offset: int) -> None:
        """Forget the records below an offset."""
        self.first = max(self.first, offset)
        # the last record of a batch decides: at most one batch keeps records below `first`
        self.batches = [b for b in self.batches if b.column("offset")[-1].as_py() >= self.first]

    def select(self, offsets: OffsetGap) -> list[RecordBatch]:
        """Return the records in a range."""
        return [part for batch in self.batches if (part := _slice_offsets(batch, offsets)).num_rows]


def _slice_offsets(batch: RecordBatch, offsets: OffsetGap) -> RecordBatch:
    first, end = np.searchsorted(batch.column("offset").to_numpy(), offsets)  # ascending in a partition
    return batch.slice(first, end - first)
