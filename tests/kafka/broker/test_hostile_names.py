"""Hostile client ids and a hostile name of a group, on a real broker: text in all commands, log and page."""

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from urllib.request import urlopen

import pytest
import yaml
from confluent_kafka import Consumer

from support.sidecar_bench import Flow, run_beside_readers
from trimtab.cli.main import main
from trimtab.cli.terminal import escape_control_characters

pytestmark = pytest.mark.broker

CLIENT_IDS = ("worker[/eu]", "[prod] orders", "\x1b[2Jgone", "one\nERROR two", "a\u202eb", ":smile: [b]y")
LOG_LINE = re.compile(r"\d\d:\d\d:\d\d [DIWEC] \w")


@dataclass
class HostileGroup:
    """A group whose members and name are hostile, and the settings file of a sidecar that advises it."""

    name: str
    config: Path
    folder: Path
    log: Path


def read_until(stop: Event, consumers: list[Consumer]) -> None:
    while not stop.is_set():
        for consumer in consumers:
            consumer.consume(500, timeout=0.05)
    for consumer in consumers:
        consumer.close()


@pytest.fixture
def hostile(
    bootstrap: str, group: str, topic: Callable[..., str], tmp_path: Path, eventually: Callable[..., None]
) -> Iterator[HostileGroup]:
    """Six consumers of one group, the sidecar that advises it, and twice as much load as they can take."""
    name = f"{group} [prod]\x1b[31m\nERROR forged"
    read = topic(partitions=8)
    stop, log = Event(), tmp_path / "sidecar.log"
    common = {"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
    consumers = [Consumer({**common, "client.id": one, "auto.commit.interval.ms": 500}) for one in CLIENT_IDS]
    for one in consumers:
        one.subscribe([read])
    config = tmp_path / "sidecar.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "bootstrap": bootstrap, "group": name, "topics": read, "capacity": "2 kB/s",
                "interval": "500 ms", "window": "2 s", "plan-topic": f"{group}.plans",
                "write-rate-topic": f"{group}.rates", "decision-topic": f"{group}.decisions",
            }
        )
    )  # fmt: skip
    reading = Thread(target=read_until, args=(stop, consumers))
    with run_beside_readers(config, log, Flow(bootstrap, read), reading, stop):
        eventually(lambda: "condition ConsumerOverloaded" in log.read_text(), 120)
        yield HostileGroup(name, config, tmp_path, log)


def find_control_characters(text: str) -> set[str]:
    """Return what could move a cursor, change colours, or turn text round."""
    return {one for one in text if one != "\n" and unicodedata.category(one) in {"Cc", "Zl", "Zp"}} | (
        {"\u202e"} & set(text)
    )


def test_names_that_others_chose_stay_text(hostile: HostileGroup, capsys: pytest.CaptureFixture[str]) -> None:
    """No command ends at a name, forges a line with it, or sends it to the terminal as it is."""
    config = ("-c", str(hostile.config))
    recorded = str(hostile.folder / "stream.json")
    commands = {
        "plan": ("plan", *config),
        "plan as JSON": ("plan", *config, "--format", "json"),
        "top": ("top", *config, "--once"),
        "top as JSON": ("top", *config, "--once", "--format", "json"),
        "explain": ("explain", *config),
        "explain as JSON": ("explain", *config, "--format", "json"),
        "doctor": ("doctor", *config),
        "doctor as JSON": ("doctor", *config, "--format", "json"),
        "record": ("record", *config, "--duration", "3 s", "--out", recorded),
        "simulate": ("simulate", "--stream", recorded, "--capacity", "2 kB/s", "--live", "--tick", "1 s"),
        "init": ("init", "--bootstrap", read_bootstrap(hostile), "--group", hostile.name,
                 "--out", str(hostile.folder / "init"), "--window", "2 s"),
    }  # fmt: skip
    for name, words in commands.items():
        code = main(list(words))
        shown = capsys.readouterr()
        text = shown.out + shown.err
        assert code in (0, 1), (name, text)
        assert text, name
        assert find_control_characters(text) == set(), name
        assert not re.search(r"(?m)^ERROR", text), name
        if name in {"top", "top as JSON"}:
            for one in CLIENT_IDS:
                told = json.dumps(one)[1:-1] if "JSON" in name else escape_control_characters(one)
                assert told in text, (name, one)
        if name in {"doctor", "explain", "top"}:
            assert "ConsumerOverloaded" in text
    written = yaml.safe_load((hostile.folder / "init" / "sidecar.yaml").read_text())
    assert written["group"] == hostile.name
    assert_log_is_whole(hostile)
    assert_page_has_names_as_text(hostile)


def read_bootstrap(hostile: HostileGroup) -> str:
    settings = yaml.safe_load(hostile.config.read_text())
    return str(settings["bootstrap"])


def assert_log_is_whole(hostile: HostileGroup) -> None:
    """Each line of the log is one of the sidecar's own."""
    text = hostile.log.read_text()
    assert find_control_characters(text) == set()
    assert [line for line in text.splitlines() if not LOG_LINE.match(line)] == []
    assert any(escape_control_characters(one) in text for one in CLIENT_IDS)  # the fullest consumer


def assert_page_has_names_as_text(hostile: HostileGroup) -> None:
    """The page gets names as JSON, and writes them as text (tests/page)."""
    found = re.search(r"decisions at (http://\S+)", hostile.log.read_text())
    assert found
    with urlopen(f"{found[1]}/history", timeout=30) as answer:  # noqa: S310 - the sidecar's own page
        assert answer.headers["content-type"].startswith("application/json")
        history = json.loads(answer.read())
    assert set(CLIENT_IDS) <= set(history["consumers"])
    assert history["group"] == hostile.name
    with urlopen(f"{found[1]}/metrics", timeout=30) as answer:  # noqa: S310 - as above
        metrics = answer.read().decode()
    assert 'type="ConsumerOverloaded"' in metrics
    assert not re.search(r"(?m)^ERROR", metrics)
