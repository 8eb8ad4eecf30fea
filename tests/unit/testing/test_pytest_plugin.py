"""The pytest plugin, in a project of a user."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

USERS_TEST: Final = """
def test_no_record_is_lost(simulated_group):
    simulated_group(lambda message: None, histories=1).check_at_least_once()
"""


def test_warnings_may_be_errors(tmp_path: Path) -> None:
    """A project whose tests fail at each warning uses the kit; nothing that it brings along warns."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "conftest.py").write_text("import kafka\n")
    (tmp_path / "test_mine.py").write_text(USERS_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    environ = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}  # of this run
    done = subprocess.run(
        command, cwd=tmp_path, env=environ, check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stdout
