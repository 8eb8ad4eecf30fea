"""Every program in examples/ runs and prints the documented output."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

pytestmark = [pytest.mark.broker]

EXAMPLES = Path(__file__).parents[3] / "examples"


def run(name: str, *arguments: str) -> str:
    """Run an example and return its output; asserts that it logs no silent consumer."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=True)
    assert "silent" not in done.stderr
    return done.stdout


@pytest.fixture
def orders(topic: Callable[..., str], bootstrap: str) -> str:
    """A topic with ten orders, half of them paid."""
    name = topic(partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        value = f"{'paid' if number % 2 else 'open'} order {number}"
        producer.produce(name, value.encode(), partition=0)
    producer.flush()
    return name


@pytest.mark.parametrize("name", ["consume.py", "consume_async.py", "plain_kafka_python.py"])
def test_consumer_examples_print_all_records(name: str, bootstrap: str, orders: str) -> None:
    """Both Trimtab consumers and the kafka-python consumer read the topic from its start."""
    printed = run(name, bootstrap, orders)
    assert printed.count(" order ") == 10
    assert "0 0 b'open order 0'" in printed


def test_the_handlers_example_passes(bootstrap: str) -> None:
    """A user's tests run with the fixtures of the installed plugin."""
    command = [sys.executable, "-m", "pytest", "-q", "-n0", str(EXAMPLES / "test_payments.py")]
    environment = {**os.environ, "TRIMTAB_TEST_BOOTSTRAP": bootstrap}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert "3 passed" in done.stdout, done.stdout


def test_rack_example_prints_all_records(bootstrap: str, orders: str) -> None:
    """The rack-aware consumer reads all partitions of brokers without a rack."""
    printed = run("racks.py", bootstrap, orders, "a")
    assert "rack a reads [0, 1]" in printed
    assert printed.count(" order ") == 10


@pytest.mark.parametrize("kind", ["kmq", "ordered", "share"])
def test_queue_example_handles_all_orders(kind: str, bootstrap: str, orders: str) -> None:
    """Every queue kind redelivers the failed orders once and dead-letters the rejected one."""
    printed = run("work_queue.py", bootstrap, orders, kind, "10").splitlines()
    open_, paid = range(0, 10, 2), (1, 5, 7, 9)
    assert sorted(printed) == sorted(
        [
            *(f"handled open order {n} at delivery 2" for n in open_),
            *(f"handled paid order {n} at delivery 1" for n in paid),
        ]
    )


def test_producer_example_creates_its_topic(bootstrap: str, group: str) -> None:
    """produce.py creates a topic and writes 100 records to it."""
    assert run("produce.py", bootstrap, f"{group}-made") == f"100 records in {group}-made\n"
    assert run("consume.py", bootstrap, f"{group}-made").count(" order ") == 10


def test_heuristic_example_assigns_round_robin() -> None:
    """own_heuristic.py assigns the partitions to the members in turn."""
    assert run("own_heuristic.py").splitlines()[:3] == ["orders-0 a", "orders-1 b", "orders-2 a"]


def test_lake_example_writes_paid_orders(bootstrap: str, orders: str, tmp_path: Path) -> None:
    """The table has the five rows that pass the transform."""
    run("lake.py", bootstrap, orders, str(tmp_path / "warehouse"))
    command = [sys.executable, "-m", "trimtab.cli", "tables", "--format", "json"]
    tables = subprocess.run(
        [*command, "--warehouse", str(tmp_path / "warehouse")],
        capture_output=True,
        text=True,
        timeout=150,
        check=True,
    )
    assert '"rows": 5' in tables.stdout


def test_consumer_example_ends_on_sigint(topic: Callable[..., str], bootstrap: str) -> None:
    """SIGINT ends consume.py with 0 and without a traceback."""
    command = [sys.executable, "-u", str(EXAMPLES / "consume.py"), bootstrap, topic(partitions=1)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"got")
        process.send_signal(signal.SIGINT)
        try:
            _, stderr = process.communicate(timeout=60)
        finally:
            process.kill()  # else the test would wait for an example that does not end
    assert (process.returncode, b"Traceback" in stderr) == (0, False)
