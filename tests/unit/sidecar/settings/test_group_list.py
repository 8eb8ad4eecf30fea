"""Settings of a sidecar with many groups: what an entry inherits, and whose error is whose."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab.common.errors import SettingError
from trimtab.sidecar.settings.group_list import (
    GroupEntry,
    GroupListSettings,
    load_settings_of_groups,
    load_settings_of_one_group,
)
from trimtab.sidecar.settings.settings import SidecarSettings

COMMON = {"bootstrap": "localhost:1", "capacity": "1 MB/s", "max": 7}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sidecar.yaml"


def load(file: Path, body: dict[str, Any], **flags: Any) -> GroupListSettings:
    file.write_text(yaml.safe_dump({**COMMON, **body}))
    listed = load_settings_of_groups(file, flags)
    assert isinstance(listed, GroupListSettings)
    return listed


def by_name(listed: GroupListSettings) -> dict[str, GroupEntry]:
    return {entry.group: entry for entry in listed.list_entries()}


def test_own_settings_win_over_common_ones(file: Path) -> None:
    """An entry has the common settings, and its own in their place; a flag is a common one."""
    groups = [{"group": "lake"}, {"group": "clicks", "max": 3, "state-dir": "own"}]
    entries = by_name(load(file, {"groups": groups, "state-dir": "run"}, headroom="0.5"))
    lake, clicks = entries["lake"].settings, entries["clicks"].settings
    assert lake is not None
    assert clicks is not None
    assert (lake.max, clicks.max, clicks.headroom) == (7, 3, 0.5)
    assert (lake.state_dir, clicks.state_dir) == (file.parent / "run/groups/lake", file.parent / "own")
    assert not lake.leader_election


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ({"group": "bad", "min": 9}, "groups, entry 2: min=9 is above max=7"),
        ({"group": "bad", "capcity": 1}, "groups, entry 2: 'capcity' is not a setting"),
        ({"group": "bad", "port": 8080}, "groups, entry 2: port: a setting of the whole process"),
        ({"max": 3}, "groups, entry 2: group is missing"),
        ({"group": "lake"}, "groups, entry 2: group 'lake' is there twice"),
    ],
)
def test_a_bad_entry_is_an_error_of_its_own(file: Path, entry: dict[str, Any], error: str) -> None:
    """The other entry has its settings; with bad entries only, the sidecar does not start."""
    lake, bad = load(file, {"groups": [{"group": "lake"}, entry]}).list_entries()
    assert lake.settings is not None
    assert bad.settings is None
    assert bad.error.startswith(error)


def test_only_bad_entries_end_the_sidecar(file: Path) -> None:
    """Each entry's error is told."""
    with pytest.raises(SettingError, match=r"entry 1: min=9.*entry 2: group is missing"):
        load(file, {"groups": [{"group": "a", "min": 9}, {"max": 3}]})


def test_bad_settings_of_the_process_end_the_sidecar(file: Path) -> None:
    """Neither a port out of range nor a broken pattern is one group's."""
    with pytest.raises(SettingError, match="port=99999"):
        load(file, {"groups": [{"group": "lake"}], "port": 99999})
    with pytest.raises(SettingError, match="group-pattern='lake-\\(' is no pattern"):
        load(file, {"group-pattern": "lake-("})


def test_a_pattern_matches_whole_names_that_groups_do_not_have(file: Path) -> None:
    """A listed group keeps its own settings."""
    listed = load(file, {"groups": [{"group": "lake-1", "max": 3}], "group-pattern": "lake-."})
    matched = listed.match_groups(("lake-1", "lake-2", "lake-22", "a-lake-2"))
    assert [(entry.group, entry.origin) for entry in matched] == [("lake-2", "group-pattern")]


@pytest.mark.parametrize("target", ["keda", "process"])
def test_a_group_that_cannot_move_is_refused_with_a_shard_topic(file: Path, target: str) -> None:
    """Its target is a part of one sidecar; the other entry goes from sidecar to sidecar."""
    groups = [{"group": "lake"}, {"group": "bad", "target": target, "worker": "sleep 9"}]
    lake, bad = load(file, {"groups": groups, "shard-topic": "trimtab.shards"}).list_entries()
    assert lake.settings is not None
    assert bad.error.startswith(f"groups, entry 2: target={target}")
    assert "shard-topic" in bad.error


def test_the_sidecars_own_group_is_not_managed(file: Path) -> None:
    """A pattern that matches everything does not match the group in which sidecars share the shards."""
    listed = load(file, {"group-pattern": ".*", "shard-topic": "trimtab.shards"})
    assert [entry.group for entry in listed.match_groups(("lake", "trimtab.shards"))] == ["lake"]
    with pytest.raises(SettingError, match="shard-topic is empty"):
        load(file, {"group-pattern": ".*", "shard-topic": " "})


def test_a_command_names_one_of_the_groups(file: Path) -> None:
    """`--group` selects an entry, or what the pattern matches; without it the groups are told."""
    load(file, {"groups": [{"group": "lake", "max": 3}], "group-pattern": "etl-.*"})
    one = load_settings_of_groups(file, {"group": "lake"})
    assert isinstance(one, SidecarSettings)
    assert (one.group, one.max) == ("lake", 3)
    assert load_settings_of_one_group(file, {"group": "etl-1"}).max == 7
    with pytest.raises(SettingError, match="'other' is none of the file's groups: lake"):
        load_settings_of_one_group(file, {"group": "other"})
    with pytest.raises(SettingError, match=r"name one: --group NAME \(lake\)"):
        load_settings_of_one_group(file, {})


def test_a_command_finds_a_group_that_kubernetes_objects_name(file: Path) -> None:
    """They are asked after the file's list and before its pattern, and only if the file says so."""
    asked: list[str] = []

    def find_entry(listed: GroupListSettings, group: str) -> GroupEntry | None:
        asked.append(group)
        return listed.build_entry(group, {"max": 5}, "a resource") if group == "etl-1" else None

    body = {"groups": [{"group": "lake", "max": 3}], "group-pattern": "etl-.*", "custom-resources": True}
    load(file, body)
    found = {
        name: load_settings_of_one_group(file, {"group": name}, find_entry).max
        for name in ("lake", "etl-1", "etl-2")
    }
    assert (found, asked) == ({"lake": 3, "etl-1": 5, "etl-2": 7}, ["etl-1", "etl-2"])
    with pytest.raises(SettingError, match="those of ConsumerGroupScaler resources; no Kubernetes object"):
        load_settings_of_one_group(file, {"group": "other"}, find_entry)
    with pytest.raises(SettingError, match="those are managed without --group"):
        load_settings_of_one_group(file, {"group": "other"})
    load(file, {**body, "custom-resources": False})
    assert load_settings_of_one_group(file, {"group": "etl-1"}, find_entry).max == 7
    assert asked[2:] == ["other"]


def test_an_empty_selector_is_refused(file: Path) -> None:
    """It would match every workload; a namespace to watch needs something to watch."""
    with pytest.raises(SettingError, match="workload-selector is empty"):
        load(file, {"workload-selector": " "})
    with pytest.raises(SettingError, match="neither custom-resources nor workload-selector"):
        load(file, {"groups": [{"group": "a"}], "watch-namespace": "shop"})
    assert load(file, {"workload-selector": "a=b", "watch-namespace": "shop"}).options.has_kubernetes_objects


def test_a_file_of_one_group_is_as_before(file: Path) -> None:
    """Without a list the settings are those of one group, leader election included."""
    file.write_text(yaml.safe_dump({**COMMON, "group": "lake"}))
    settings = load_settings_of_groups(file, {})
    assert isinstance(settings, SidecarSettings)
    assert settings.leader_election
