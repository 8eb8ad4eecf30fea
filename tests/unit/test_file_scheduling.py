"""What the test run does when one of its workers crashes."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from support import file_scheduling

CONFTEST: Final = """
from support.file_scheduling import FileScheduling

def pytest_xdist_make_scheduler(config, log):
    return FileScheduling(config, log)
"""
CRASHES_ONCE: Final = """
import os
from pathlib import Path

def test_crash():
    if not Path("crashed").exists():
        Path("crashed").touch()
        os._exit(3)
"""
FILES: Final = 6


def test_run_ends_after_the_crash_of_a_worker(tmp_path: Path) -> None:
    """Every test runs, and the crash is reported; with xdist's own scheduler the run never ends."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for number in range(FILES):
        (tmp_path / f"test_{number}.py").write_text(
            "def test_one():\n    pass\n\ndef test_two():\n    pass\n"
        )
    (tmp_path / "test_3_crash.py").write_text(CRASHES_ONCE)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-n2", "--dist=loadfile", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(file_scheduling.__file__).parents[1]), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert f"1 failed, {2 * FILES + 1} passed" in run.stdout, run.stdout
    assert "crashed while running 'test_3_crash.py::test_crash'" in run.stdout
