"""When a batch is flushed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits of the buffers of `writer.batches`, whose rules use them."""

    batch_bytes: int  # of one table
    memory_bytes: int  # of all tables
    max_age_s: float
    nearly_full_fraction: float = 0.8  # of `batch_bytes`: flushed in a revocation
