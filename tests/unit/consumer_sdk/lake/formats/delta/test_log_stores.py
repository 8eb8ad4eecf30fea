"""Unfinished logs of Delta tables on a local file system."""

from pathlib import Path

import pytest

from trimtab.consumer_sdk.lake.formats.delta.log_stores import STAGED_COMMITS_FOLDER, remove_unfinished_log

COMMIT = f"{0:020}.json"


@pytest.mark.parametrize("left", [(), (f".{COMMIT}.1.tmp",), (f".{COMMIT}.1.tmp", f".{COMMIT}.2.tmp.crc")])
def test_a_log_without_a_commit_is_removed(tmp_path: Path, left: tuple[str, ...]) -> None:
    """Drafts belong to writers that were killed, or that will retry."""
    folder = tmp_path / "_delta_log"
    (folder / STAGED_COMMITS_FOLDER).mkdir(parents=True)
    for name in left:
        (folder / name).touch()
    remove_unfinished_log(folder)
    assert not folder.exists()
    remove_unfinished_log(folder)  # another writer may have removed it


@pytest.mark.parametrize("kept", [COMMIT, "_last_checkpoint", "notes"])
def test_whatever_is_no_draft_stays(tmp_path: Path, kept: str) -> None:
    """Another writer may have committed meanwhile."""
    (tmp_path / kept).touch()
    remove_unfinished_log(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [kept]
