"""Cost of a consumer that has nothing, or little, to do, compared with confluent-kafka's in the same run.

Each client reads a topic of its own in a process of its own, both at the same time, first without records,
then at --rate records/s. Measured in each process: its CPU time as a percentage of one core, the context
switches of all its threads per second (voluntary and not, /proc/PID/task/*/status), and its resident memory.
On a busy machine the switches and the CPU time stay meaningful. `--threads` lists them by thread.

RESULT: `import_cpu_s`, of the consumer's class in a process of its own, by package; `idle` and `slow` (at
--rate) with `cpu_percent` of one core, `wakeups` per second, `mb` of resident memory, each by client.
"""

import json
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from subprocess import PIPE, Popen, check_output
from threading import Event
from typing import Any, NamedTuple

from benchmarks.harness import broker, new_topic, parser, produced, result

CLIENTS = ("trimtab", "trimtab_heartbeat_3s", "trimtab_async", "confluent")
SETTINGS = {"trimtab_heartbeat_3s": {"heartbeat.interval.ms": 3000}}
"""Settings beside the defaults; 3 s is confluent-kafka's default, Trimtab's is 250 ms."""
IMPORTS = {"trimtab": "trimtab.consumer_sdk", "confluent": "confluent_kafka"}
IMPORT_RUNS = 5
PARTITIONS = 4
SETTLE_S = 5.0
"""Between joining or the first records and the measurement: connections are made, caches filled."""
NS_PER_S = 1_000_000_000


class Usage(NamedTuple):
    """What the threads of a process have used, by their ids; `mb` is the process's resident memory."""

    cpu_s: Counter[int]
    wakeups: Counter[int]
    mb: float


def read_usage(pid: int) -> Usage:
    """Return what the process has used so far."""
    cpu_s: Counter[int] = Counter()
    wakeups: Counter[int] = Counter()
    for task in Path(f"/proc/{pid}/task").iterdir():
        cpu_s[int(task.name)] = int((task / "schedstat").read_text().split()[0])
        wakeups[int(task.name)] = sum(
            int(line.split()[1])
            for line in (task / "status").read_text().splitlines()
            if "ctxt_switches" in line
        )
    resident = next(
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")
    )
    return Usage(cpu_s, wakeups, int(resident.split()[1]) / 1000)


def measure_import(package: str) -> float:
    """Return the CPU seconds that the import of `Consumer` takes, the median of new processes."""
    code = f"from time import process_time as t; a = t(); from {package} import Consumer; print(t() - a)"
    return median(float(check_output([sys.executable, "-c", code])) for _ in range(IMPORT_RUNS))


class Host:
    """A client's process."""

    def __init__(self, client: str, bootstrap: str, topic: str) -> None:
        config = {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "topic": topic,
            **SETTINGS.get(client, {}),
        }
        host = str(Path(__file__).parent / "idle_host.py")
        self.topic = topic
        self.process = Popen(
            [sys.executable, host, client, json.dumps(config)], stdin=PIPE, stdout=PIPE, text=True
        )

    def ask(self, line: str = "") -> str:
        """Return the next line of output, after writing `line` if it is not empty."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if line:
            self.process.stdin.write(line)
            self.process.stdin.flush()
        return self.process.stdout.readline()

    def name_threads(self) -> dict[int, str]:
        """Return the names of its threads, those of librdkafka by what they call themselves."""
        own = {int(native): name for native, name in json.loads(self.ask("threads\n")).items()}
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return {int(t.name): own.get(int(t.name)) or (t / "comm").read_text().strip() for t in tasks}

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


@contextmanager
def opened_hosts(clients: Sequence[str], bootstrap: str) -> Generator[dict[str, Host]]:
    """Start the clients; yield them once each of them reads."""
    with ExitStack() as stack:
        hosts = {c: Host(c, bootstrap, new_topic(bootstrap, PARTITIONS)) for c in clients}
        for host in hosts.values():
            stack.callback(host.close)
        for host in hosts.values():
            assert host.ask().strip() == "reading"
        yield hosts


def measure_hosts(hosts: dict[str, Host], seconds: float, *, threads: bool) -> dict[str, dict[str, float]]:
    """Return the figures of each client while they run for `seconds`."""
    Event().wait(SETTLE_S)
    before = {client: read_usage(host.process.pid) for client, host in hosts.items()}
    Event().wait(seconds)
    after = {client: read_usage(host.process.pid) for client, host in hosts.items()}
    figures: dict[str, dict[str, float]] = {"cpu_percent": {}, "wakeups": {}, "mb": {}}
    for client, host in hosts.items():
        cpu, wakeups = (
            after[client].cpu_s - before[client].cpu_s,
            after[client].wakeups - before[client].wakeups,
        )
        figures["cpu_percent"][client] = round(100 * cpu.total() / NS_PER_S / seconds, 2)
        figures["wakeups"][client] = round(wakeups.total() / seconds, 1)
        figures["mb"][client] = round(after[client].mb, 1)
        if threads:
            names = host.name_threads()
            print(client)
            for task, count in wakeups.most_common():
                line = f"{names.get(task, '?'):40} {count / seconds:6.1f} wakeups/s"
                print("  ", line, f"{100 * cpu[task] / NS_PER_S / seconds:5.2f} % of a core")
    return figures


def main() -> None:
    arguments: ArgumentParser = parser(
        "cost of a consumer with nothing, or little, to do, compared with confluent-kafka's"
    )
    arguments.add_argument("--seconds", type=float, default=10, help="of each measurement")
    arguments.add_argument("--rate", type=float, default=400, help="records/s of each topic while it is slow")
    arguments.add_argument("--threads", action="store_true", help="list the threads of each client")
    arguments.add_argument("--clients", nargs="+", default=CLIENTS, choices=CLIENTS)
    options = arguments.parse_args()
    figures: dict[str, Any] = {"import_cpu_s": {n: round(measure_import(p), 3) for n, p in IMPORTS.items()}}
    print("import, CPU s: ", ", ".join(f"{name} {s:.2f}" for name, s in figures["import_cpu_s"].items()))
    with broker(options.bootstrap) as bootstrap, opened_hosts(options.clients, bootstrap) as hosts:
        figures["idle"] = measure_hosts(hosts, options.seconds, threads=options.threads)
        print_table("idle", figures["idle"])
        with ExitStack() as stack:
            for host in hosts.values():
                stack.enter_context(produced(bootstrap, host.topic, PARTITIONS, options.rate / PARTITIONS))
            figures["slow"] = measure_hosts(hosts, options.seconds, threads=options.threads)
        print_table(f"{options.rate:g} records/s", figures["slow"])
    result(figures)


def print_table(title: str, figures: dict[str, dict[str, float]]) -> None:
    """Print the figures of a measurement by client."""
    print(f"{title:24} % of a core   wakeups/s   MB")
    for client, cpu in figures["cpu_percent"].items():
        print(f"{client:24} {cpu:11.2f} {figures['wakeups'][client]:11.1f} {figures['mb'][client]:6.1f}")


if __name__ == "__main__":
    main()
