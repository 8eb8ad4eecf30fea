"""Configuration files: one flat YAML mapping, or an error that names the file."""

from pathlib import Path

import pytest

from trimtab.common.config_file import load_config_file
from trimtab.common.errors import SettingError
from trimtab.sidecar.settings.settings import read_settings_file

# each line has the list before ten times: 10**60 values
BOMB = b"\n".join(
    [b"a0: &a0 [x]", *(b"a%d: &a%d [%s]" % (n, n, b",".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 60))]
)


@pytest.mark.parametrize(
    "content",
    [
        b"group.id: \xe0",
        b"a: 2026-06-31",
        b"a: " + b"[" * 3000,
        b"a: &x [*x]",
        BOMB,
        b"- a",
        b"1: a",
        b"a: ${file:/\\0}",
    ],
    ids=[
        "not UTF-8",
        "no such day",
        "deep",
        "a list in itself",
        "a bomb",
        "a list",
        "a number",
        "no such secret",
    ],
)
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, content: bytes) -> None:
    """Whatever a file holds, the error names it, or the secret that it refers to."""
    file = tmp_path / "ingest.yaml"
    file.write_bytes(content)
    with pytest.raises(SettingError, match=r"ingest.yaml|cannot be read"):
        load_config_file(file)


def test_an_alias_stands_for_a_single_value(tmp_path: Path) -> None:
    """A value may be given once and used again."""
    file = tmp_path / "ingest.yaml"
    file.write_text("client.id: &name w1\ngroup.instance.id: *name\n")
    assert load_config_file(file) == {"client.id": "w1", "group.instance.id": "w1"}


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    """Consumers and sidecar read the same files in the same way."""
    file = tmp_path / "empty.yaml"
    file.write_text("# nothing yet\n")
    assert load_config_file(file) == read_settings_file(file) == {}
