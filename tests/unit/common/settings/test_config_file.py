"""Configuration files: one flat YAML mapping, or an error that names the file."""

from pathlib import Path
from typing import get_args

import pytest

from trimtab.cli.lake_session import load_lake_settings
from trimtab.common.errors import SettingError
from trimtab.common.kafka_security.client_config import SECURITY_SETTINGS
from trimtab.common.settings.config_file import PATH_SETTINGS, load_config_file
from trimtab.common.settings.settings_model import SettingsModel, list_settings
from trimtab.consumer_sdk.lake.writer.ingest import IngestOptions
from trimtab.sidecar.settings.options import SidecarOptions
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


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("./lake", "{folder}/lake"),
        ("../lake", "{folder}/../lake"),
        ("/lake", "/lake"),
        ("~/lake", "~/lake"),
        ("s3://bucket/lake", "s3://bucket/lake"),
        ("hdfs:/lake", "hdfs:/lake"),
    ],
)
def test_a_relative_path_is_in_the_folder_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, meant: str
) -> None:
    """Commands of every working folder mean the same lake; URIs and absolute paths stay."""
    file = tmp_path / "x" / "ingest.yaml"
    file.parent.mkdir()
    file.write_text(f"lake.warehouse: {written}\n")
    monkeypatch.chdir(tmp_path)
    expected = meant.format(folder=file.parent)
    assert load_lake_settings(Path("x/ingest.yaml"), None)["lake.warehouse"] == expected


def test_relative_paths_are_resolved_in_mappings_and_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the client, of a sidecar's groups and of secrets; librdkafka's `probe` stays."""
    (tmp_path / "password").write_text("secret")
    (tmp_path / "sidecar.yaml").write_text(
        "kafka: {ssl.ca.location: ca.pem, sasl.password: '${file:password}'}\n"
        "groups: [{group: a, state-dir: state}]\nssl.ca.location: probe\n"
    )
    monkeypatch.chdir("/")
    assert load_config_file(tmp_path / "sidecar.yaml") == {
        "kafka": {"ssl.ca.location": f"{tmp_path}/ca.pem", "sasl.password": "secret"},
        "groups": [{"group": "a", "state-dir": f"{tmp_path}/state"}],
        "ssl.ca.location": "probe",
    }


def test_each_setting_of_a_path_is_resolved() -> None:
    """Those with the type of a path, and locations of librdkafka."""
    models: tuple[type[SettingsModel], ...] = (SidecarOptions, IngestOptions)
    settings = (one for model in models for one in list_settings(model))
    paths = {one.name for one in settings if Path in (one.annotation, *get_args(one.annotation))}
    paths |= {name for name in SECURITY_SETTINGS if name.endswith(".location")}
    assert paths | {"lake.warehouse"} == PATH_SETTINGS
