"""Seconds of the testing kit: until its broker answers with a topic, and for the histories of a handler.

    python -m benchmarks.consumer.bench_kit

The broker is embedded, its JARs are in the cache, and one start before the measured one has filled the
machine's file cache. The last line is RESULT {"warm_s": ..., "histories": ..., "histories_s": ..., ...}.
"""

import argparse
import json
import os
import time
from typing import Any

from trimtab.testing import KafkaTopics, run_broker, simulate_group


def measure_broker() -> float:
    """Return the seconds until a topic of a new broker exists."""
    begun = time.monotonic()
    with run_broker() as broker:
        KafkaTopics(broker.bootstrap, "warm")()
        return time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=100)
    arguments = parser.parse_args()
    os.environ["TRIMTAB_TEST_BROKER"] = "embedded"
    measure_broker()
    warm = measure_broker()
    paid: dict[Any, int] = {}
    begun, cpu = time.monotonic(), time.process_time()
    report = simulate_group(lambda message: paid.update({message.value(): 1}), histories=arguments.histories)
    result = {
        "warm_s": round(warm, 1),
        "histories": report.histories,
        "histories_s": round(time.monotonic() - begun, 1),
        "histories_cpu_s": round(time.process_time() - cpu, 1),
        "records": report.records,
        "rebalances": report.rebalances,
        "faults": report.faults,
        "repeated": len(report.repeated),
        "never": len(report.never),
    }
    print(f"RESULT {json.dumps(result)}")


if __name__ == "__main__":
    main()
