"""What the documentation shows as Python runs when it is pasted."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"


def test_the_certificate_in_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The example of docs/optimality.md needs nothing that it does not define."""
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "optimality.md").read_text(), re.DOTALL)
    exec(compile(code, "docs/optimality.md", "exec"), {})  # noqa: S102 - our own text
    assert "above the optimum: " in capsys.readouterr().out
