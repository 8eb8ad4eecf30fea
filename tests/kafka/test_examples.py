"""Every program in examples/ runs and prints what it promises."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

pytestmark = [pytest.mark.broker]

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str) -> str:
    """Return what the program prints; what it logs must hold no false alarm."""
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


@pytest.mark.parametrize("name", ["consume.py", "plain_kafka_python.py"])
def test_the_consumers_print_ten_records(name: str, bootstrap: str, orders: str) -> None:
    """Both ways to consume read the topic from its beginning."""
    printed = run(name, bootstrap, orders)
    assert printed.count(" order ") == 10
    assert "0 0 b'open order 0'" in printed


def test_the_consumer_in_a_rack_prints_ten_records(bootstrap: str, orders: str) -> None:
    """Where brokers say no rack it reads all the same."""
    printed = run("racks.py", bootstrap, orders, "a")
    assert "rack a reads [0, 1]" in printed
    assert printed.count(" order ") == 10


@pytest.mark.parametrize("kind", ["kmq", "ordered", "share"])
def test_the_queue_example_handles_all_orders(kind: str, bootstrap: str, orders: str) -> None:
    """Every kind of queue delivers the failed orders once more, and gives the refused one up."""
    printed = run("work_queue.py", bootstrap, orders, kind, "10").splitlines()
    open_, paid = range(0, 10, 2), (1, 5, 7, 9)
    assert sorted(printed) == sorted(
        [
            *(f"handled open order {n} at delivery 2" for n in open_),
            *(f"handled paid order {n} at delivery 1" for n in paid),
        ]
    )


def test_the_producer_makes_what_it_fills(bootstrap: str, group: str) -> None:
    """The other examples find a topic with records in it."""
    assert run("produce.py", bootstrap, f"{group}-made") == f"100 records in {group}-made\n"
    assert run("consume.py", bootstrap, f"{group}-made").count(" order ") == 10


def test_the_heuristic_deals_in_turn() -> None:
    """The example of a heuristic gives every other partition to the same member."""
    assert run("own_heuristic.py").splitlines()[:3] == ["orders-0 a", "orders-1 b", "orders-2 a"]


def test_the_lake_example_writes_what_is_paid(bootstrap: str, orders: str, tmp_path: Path) -> None:
    """The transform's five rows are in the table, and the command lists them."""
    run("lake.py", bootstrap, orders, str(tmp_path / "warehouse"))
    command = [sys.executable, "-m", "trimtab.cli", "tables", "--format", "json"]
    listed = subprocess.run(
        [*command, "--warehouse", str(tmp_path / "warehouse")],
        capture_output=True,
        text=True,
        timeout=150,
        check=True,
    )
    assert '"rows": 5' in listed.stdout


def test_the_consumer_ends_on_ctrl_c_without_a_traceback(topic: Callable[..., str], bootstrap: str) -> None:
    """It leaves the group and says nothing more."""
    command = [sys.executable, "-u", str(EXAMPLES / "consume.py"), bootstrap, topic(partitions=1)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"got")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, b"Traceback" in said) == (0, False)
