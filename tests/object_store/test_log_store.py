"""Delta's log on S3: one of several processes gets a commit's name."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from object_store.rig import ObjectStoreRig
from object_store.servers import BUCKET, REGION
from trimtab.consumer_sdk.lake.formats.delta import log_stores

pytestmark = [pytest.mark.object_store, pytest.mark.usefixtures("credentials")]

RACER = Path(__file__).parents[1] / "lake" / "tables" / "racer.py"
RACERS = 3
ROUNDS = 12
LONG = 300.0  # on a busy machine


@pytest.fixture
def racers() -> Iterator[list["Popen[str]"]]:
    started: list[Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_one_of_several_processes_gets_a_commits_name(
    object_store: ObjectStoreRig, tmp_path: Path, racers: list["Popen[str]"]
) -> None:
    """Processes that write each version at the same moment: one wins, and its content stays."""
    board = tmp_path / "board"
    board.write_bytes(bytes(RACERS))
    hadoop = {
        "fs.s3a.endpoint": object_store.store.address,
        "fs.s3a.endpoint.region": REGION,
        "fs.s3a.path.style.access": "true",
    }
    for number in range(RACERS):
        where = (log_stores.S3_LOG_STORE_CLASS, f"s3a://{BUCKET}/race", str(ROUNDS), str(board), str(number))
        command = [sys.executable, str(RACER), *where, *(f"{n}={value}" for n, value in hadoop.items())]
        racers.append(Popen(command, stdout=PIPE, text=True))
    won = {
        turn: n for n, racer in enumerate(racers) for turn in json.loads(racer.communicate(timeout=LONG)[0])
    }
    held = {
        int(file.stem): file.read_text() for file in (object_store.gateway.bucket / "race").glob("*.json")
    }
    assert held == {turn: f"racer {number}\n" for turn, number in won.items()}
    assert len(held) == ROUNDS
    assert len(set(won.values())) > 1
