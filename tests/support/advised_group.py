"""A group that a sidecar advises: its load, one reader that can be told what to leave, and all surfaces."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from types import MappingProxyType
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

import yaml
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as RawPartition

from support.sidecar_bench import PARTITIONS, Flow, run_beside_readers

RULES: Final = Path(__file__).parents[2] / "deploy" / "prometheus" / "rules.yaml"
PAGES: Final = ("/groups", "/decisions", "/history")
COMMANDS: Final = (("doctor",), ("explain",), ("top", "--once"))
CONDITION: Final = r'^trimtab_condition{[^}]*severity="(\w+)",type="(\w+)"} 1.0$'
WANTED: Final = "ScalingPaused"  # has no alert, for somebody has asked for it
ALL: Final = frozenset(range(PARTITIONS))
WELL: Final = "all checks passed"
NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


class Reader:
    """Reads and commits; leaves the partitions numbered `left`, as if a record there failed for ever.

    With a `halt` it commits this as their reason, as the lake's writer does. `more` are client settings.
    """

    def __init__(
        self, bootstrap: str, group: str, topic: str, commit_s: float, more: Mapping[str, str]
    ) -> None:
        self.left: frozenset[int] = frozenset()
        self.halt = ""
        self.is_away = Event()  # while it is set, nobody reads
        self._topic = topic
        self._config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": int(1000 * commit_s),
            **more,
        }

    def run(self, stop: Event) -> None:
        """Read until `stop`."""
        while not stop.is_set():
            if self.is_away.is_set():
                stop.wait(0.05)
                continue
            self._read_until(lambda: stop.is_set() or self.is_away.is_set())

    def _read_until(self, is_over: Callable[[], bool]) -> None:
        consumer, left = Consumer(self._config), frozenset[int]()
        consumer.subscribe([self._topic])
        while not is_over():
            consumer.consume(500, timeout=0.05)
            if self.left != left and consumer.assignment():
                now = self.left
                consumer.resume([RawPartition(self._topic, n) for n in left - now])
                consumer.pause([RawPartition(self._topic, n) for n in now - left])
                self._commit_halt(consumer, now - left)
                left = now
        consumer.close()

    def _commit_halt(self, consumer: Consumer, numbers: frozenset[int]) -> None:
        if not (self.halt and numbers):
            return
        with suppress(KafkaException):  # nothing has been read since the last commit
            consumer.commit(asynchronous=False)
        metadata = json.dumps({"halted": self.halt})
        unchanged = consumer.committed([RawPartition(self._topic, n) for n in numbers])
        halted = [RawPartition(p.topic, p.partition, p.offset, metadata) for p in unchanged]
        consumer.commit(offsets=halted, asynchronous=False)


@dataclass(frozen=True)
class Surfaces:
    """What a running sidecar with this configuration and log shows of the conditions of its group."""

    config: Path
    log: Path
    group: str

    @property
    def lines(self) -> list[str]:
        """The sidecar's log."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def ask(self, path: str) -> str:
        """Return what its web server answers; "" while it starts."""
        address = re.findall(r"decisions at (http://\S+)", "\n".join(self.lines))
        if not address:
            return ""
        with suppress(URLError), urlopen(f"{address[-1]}{path}", timeout=30) as answer:  # noqa: S310 - its page
            return str(answer.read().decode())
        return ""

    def list_conditions(self) -> dict[str, str]:
        """Return the severities of the conditions that hold, by type."""
        found = re.findall(CONDITION, self.ask("/metrics"), re.MULTILINE)
        return {kind: severity for severity, kind in found}

    def run(self, *words: str) -> tuple[int, str]:
        """Return the exit code of a command about the group, and what it prints, in one line."""
        command = [sys.executable, "-m", "trimtab.cli", *words, "-c", str(self.config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, " ".join(done.stdout.split())

    def find_silent(self, kinds: Iterable[str]) -> dict[str, list[str]] | None:
        """Return the surfaces that do not show a condition, by type; None if one held only at times."""
        held = self.list_conditions()
        said = {path: self.ask(path).replace(": ", ":") for path in PAGES}
        told = {words[0]: self.run(*words)[1] for words in COMMANDS}
        kinds = list(kinds)
        if not set(kinds) <= held.keys() & self.list_conditions().keys():
            return None
        shown = {kind: self._list_shown(kind, held[kind], said, told) for kind in kinds}
        return {kind: [name for name, is_told in each.items() if not is_told] for kind, each in shown.items()}

    def _list_shown(
        self, kind: str, severity: str, said: Mapping[str, str], told: Mapping[str, str]
    ) -> dict[str, bool]:
        news = [line for line in self.lines if f"condition {kind}" in line]
        return {
            "log": bool(news) and f"condition {kind}: " in news[-1],
            "alerts": kind == WANTED or bool(list_alerts(kind, severity)),
            **{path: f'"type":"{kind}"' in text for path, text in said.items()},
            **{name: f"{kind}: " in text and WELL not in text for name, text in told.items()},
        }


def list_alerts(kind: str, severity: str) -> list[str]:
    """Return the alerts whose expression selects a condition."""
    labels = {"type": kind, "severity": severity}
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    selectors = [(r["alert"], *re.findall(r"trimtab_condition{([^}]*)}", r["expr"])) for r in rules]
    return [alert for alert, *found in selectors if any(_selects(one, labels) for one in found)]


def _selects(selector: str, labels: Mapping[str, str]) -> bool:
    matchers = re.findall(r'(\w+)(!?=)"([^"]*)"', selector)
    return all((labels[name] == value) == (sign == "=") for name, sign, value in matchers)


@dataclass(frozen=True)
class AdvisedGroup:
    """Eight partitions, their load and their only reader."""

    surfaces: Surfaces
    flow: Flow
    reader: Reader


@contextmanager
def advise_group(
    bootstrap: str,
    topic: str,
    folder: Path,
    commit_s: float = 0.5,
    *,
    is_away: bool = False,
    client: Mapping[str, str] = NO_SETTINGS,
    **more: Any,
) -> Generator[AdvisedGroup]:
    """Run a sidecar that only advises, beside one reader, which may come later, and a load of 20 kB/s."""
    group, config, log = f"group-of-{topic}", folder / f"{topic}.yaml", folder / f"{topic}.log"
    settings = {"bootstrap": bootstrap, "group": group, "topics": topic, "capacity": "100 kB/s"}
    settings |= {"interval": "500 ms", "window": "2 s", "backlog-grace": "2 s", "offset-reset": "earliest"}
    settings |= {f"{name}-topic": f"{group}.{name}s" for name in ("plan", "write-rate", "decision")}
    renamed = {name.replace("_", "-"): value for name, value in more.items()}
    config.write_text(yaml.safe_dump({k: v for k, v in (settings | renamed).items() if v is not None}))
    reader, stop = Reader(bootstrap, group, topic, commit_s, client), Event()
    if is_away:
        reader.is_away.set()
    flow = Flow(bootstrap, topic)
    reading = Thread(target=reader.run, args=(stop,))
    with run_beside_readers(config, log, flow, reading, stop):
        yield AdvisedGroup(Surfaces(config, log, group), flow, reader)
