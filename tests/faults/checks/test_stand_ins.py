"""The faults' stand-ins: a suspended machine's clock, and a catalog that loses its answers."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from faults import suspended_clock, wall_clock
from faults.rest_catalog import RestCatalog
from trimtab.consumer_sdk.java.java_runtime import require_java

PROGRAM = """
import sys, time
from pathlib import Path
from faults import suspended_clock
suspended_clock.install(Path(sys.argv[1]))
for line in sys.stdin:
    print(time.monotonic() - suspended_clock.TRUE_MONOTONIC(), flush=True)
"""
NOW = """
public class Now {
    public static void main(String[] arguments) throws Exception {
        while (System.in.read() >= 0) System.out.println(System.currentTimeMillis());
    }
}
"""
TABLE = {"name": "t", "schema": {"type": "struct", "schema-id": 0, "fields": []}, "properties": {"a": "1"}}
COMMIT = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "2"}}]}


def test_a_suspended_process_misses_the_time(tmp_path: Path) -> None:
    """CLOCK_MONOTONIC of the process stands still, as often as the machine is suspended."""
    file = tmp_path / "suspended"
    command = [sys.executable, "-c", PROGRAM, str(file)]
    folder = Path(__file__).parents[2]
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for expected in (0.0, -5.0, -7.5):
            process.stdin.write("now\n")
            process.stdin.flush()
            assert float(process.stdout.readline()) == pytest.approx(expected, abs=0.1)
            suspended_clock.add(file, {0.0: 5.0, -5.0: 2.5, -7.5: 0.0}[expected])
        process.stdin.close()


def test_a_jvm_reads_a_wrong_clock(tmp_path: Path) -> None:
    """As the file says while it runs; this process keeps its own."""
    (tmp_path / "Now.java").write_text(NOW)
    file = tmp_path / "ahead"
    program = f"""
from pathlib import Path
import subprocess
from faults import wall_clock
wall_clock.install(wall_clock.build(Path({str(tmp_path)!r})), Path({str(file)!r}))
subprocess.run([{str(require_java())!r}, {str(tmp_path / "Now.java")!r}], check=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for ahead in (0.0, 1200.0, -1200.0):
            if ahead:
                wall_clock.set_ahead(file, ahead)
            process.stdin.write("\n")
            process.stdin.flush()
            assert int(process.stdout.readline()) / 1000 - time.time() == pytest.approx(ahead, abs=5)
        process.stdin.close()


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[RestCatalog]:
    catalog = RestCatalog(tmp_path)
    yield catalog
    catalog.close()


def ask(catalog: RestCatalog, path: str, body: Any = None) -> Any:
    """Return the answer's JSON, or the code of an error."""
    data = None if body is None else json.dumps(body).encode()
    try:
        request = Request(f"{catalog.uri}/v1/{path}", data)  # noqa: S310 - the stand-in itself
        with urlopen(request) as answer:  # noqa: S310
            return json.load(answer)
    except HTTPError as error:
        with error:
            return error.code


def test_a_lost_answer_is_a_commit_made(catalog: RestCatalog) -> None:
    """503, and the table has the commit; afterwards answers arrive again."""
    ask(catalog, "namespaces", {"namespace": ["n"]})
    ask(catalog, "namespaces/n/tables", TABLE)
    with catalog.losing_answers():
        assert ask(catalog, "namespaces/n/tables/t", COMMIT) == 503
    assert catalog.lost == 1
    assert ask(catalog, "namespaces/n/tables/t")["metadata"]["properties"] == {"a": "2"}
    assert ask(catalog, "namespaces/n/tables/t", COMMIT)["metadata"]["properties"] == {"a": "2"}


def test_a_commit_on_another_version_is_refused(catalog: RestCatalog) -> None:
    """409, as the specification says, and nothing changes."""
    ask(catalog, "namespaces", {"namespace": ["n"]})
    ask(catalog, "namespaces/n/tables", TABLE)
    stale = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 7}
    assert ask(catalog, "namespaces/n/tables/t", COMMIT | {"requirements": [stale]}) == 409
    assert ask(catalog, "namespaces/n/tables/t")["metadata"]["properties"] == {"a": "1"}
    assert ask(catalog, "namespaces/n/tables/u") == 404
