"""What the sidecar measures, and forecasts, of simulated write rates and backlogs."""

from collections import deque
from collections.abc import Mapping

import numpy as np

from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.assignor.model import FloatArray, TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.measurement.load_forecast import LoadForecaster
from trimtab.sidecar.measurement.write_rate_variance import WriteRateVariance
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.model.catch_up_policy import add_required_rates


class LiveMeasurement:
    """Loads and consumption rates of each tick; a tick's write rates are known exactly."""

    def __init__(
        self,
        stream: WriteRateStream,
        tick: float,
        policy: AutoscalingPolicy,
        forecaster: LoadForecaster | None = None,
        startup: float = 0.0,
    ) -> None:
        self._stream = stream
        self._tick = tick
        self._policy = policy
        self._forecaster = forecaster
        self._startup = startup
        self.forecast_rise: float | None = None  # as in `Observation`, of the last tick
        self._variance = WriteRateVariance(tick)
        self._written: FloatArray = np.zeros(len(stream.partitions))
        window = round(policy.scale_up_evaluation_window / tick)
        self._read: deque[FloatArray] = deque(maxlen=max(1, window) + 1)  # bytes until each tick

    def measure(self, number: int, backlog: FloatArray) -> Mapping[TopicPartition, PartitionLoad]:
        """Return the loads at the end of a tick; `backlog` (P,) is in bytes. Call it tick by tick."""
        rates = self._stream.rates[number]
        if number:
            self._written = self._written + np.nan_to_num(rates, nan=0.0) * self._tick
        self._read.append(self._written - backlog)
        measured = {
            p: PartitionLoad(bytes_per_s=rate, backlog_bytes=unread, backlog_records=int(unread))
            for p, rate, unread in zip(self._stream.partitions, rates.tolist(), backlog.tolist(), strict=True)
            if rate == rate  # noqa: PLR0124 - NaN: it does not exist
        }
        self._variance = self._variance.add_write_rates(number * self._tick, measured)
        known = self._variance.add_deviations(measured)
        required = add_required_rates(known, self._policy.catch_up, self._policy.usable_capacity)
        if self._forecaster is None:
            return required
        loads, status = self._forecaster.forecast_load(number * self._tick, required, self._startup)
        self.forecast_rise = status.rise
        return loads

    def measure_consumption(self) -> dict[TopicPartition, float]:
        """Return the bytes/s read in the window, as far as the simulation has lasted; {} at its beginning."""
        if len(self._read) < 2:  # noqa: PLR2004 - a rate has two ends
            return {}
        rates = (self._read[-1] - self._read[0]) / (self._tick * (len(self._read) - 1))
        return dict(zip(self._stream.partitions, np.maximum(rates, 0.0).tolist(), strict=True))
