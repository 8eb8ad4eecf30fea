"""Metadata of commits: the old owner writes its release, the new one how long the partition was not read.

A commit of several partitions carries the consumer's handler time in one of them, and that of a partition
that is not read for an error the error.
"""

import json
from collections.abc import Mapping
from math import inf
from typing import Final, NamedTuple

COMMIT_METADATA_TERMINATOR: Final = "\0"  # confluent-kafka reads past the end of commit metadata
MAX_HALT_REASON: Final = 500  # characters, so 3,000 bytes; brokers refuse metadata above 4096


class Release(NamedTuple):
    """A last commit before a release: its wall time, and the token of the round that took the partition.

    A confirmed one comes after the answers to all other commits of the partition by its former owner.
    """

    at: float | None = None
    token: str = ""
    is_confirmed: bool = False


NO_RELEASE: Final = Release()


def format_round_token(generation: int, decision_fingerprint: str) -> str:
    """Return the token of a round; empty if it has no decision that all its members know."""
    return f"{generation}:{decision_fingerprint}" if decision_fingerprint and generation >= 0 else ""


def encode_release(wall_time: float, token: str) -> str:
    """Return the metadata of a last commit."""
    released = round(wall_time, 3)
    return _encode_metadata(released=released, round=token) if token else _encode_metadata(released=released)


def encode_confirmation(metadata: str) -> str:
    """Return the metadata of a last commit, as that of its confirmation."""
    return add_facts(metadata, {"confirmed": 1})


def encode_handover(wall_time: float, seconds: float) -> str:
    """Return the metadata of a new owner's commits."""
    return _encode_metadata(handover=round(seconds, 3), at=round(wall_time, 3))


def describe_halt(reason: str) -> str:
    """Return the metadata that a commit is given for a partition that is not read."""
    text = reason[:MAX_HALT_REASON].encode(errors="replace").decode()  # of file names: they may be no UTF-8
    return json.dumps({"halted": text}, ensure_ascii=False)


def add_facts(metadata: str, facts: Mapping[str, float]) -> str:
    """Return metadata of this module, or none, with more facts in it."""
    known = json.loads(metadata.rstrip(COMMIT_METADATA_TERMINATOR) or "{}")
    return _encode_metadata(**known, **facts)


def parse_release(metadata: str | None) -> Release:
    """Return the release that a commit's metadata tells, or NO_RELEASE."""
    # Applications and other clients commit metadata of their own, and it stays for each next owner.
    try:
        facts = json.loads((metadata or "{}").rstrip(COMMIT_METADATA_TERMINATOR))
        at, token = facts["released"], facts.get("round", "")
        confirmed = facts.get("confirmed") == 1
        return Release(float(at), str(token), confirmed) if 0 <= at < inf else NO_RELEASE
    except (LookupError, TypeError, ValueError, OverflowError, RecursionError, AttributeError):
        return NO_RELEASE


def _encode_metadata(**facts: float | str) -> str:  # the keywords are the names that the sidecar reads
    return json.dumps(facts, ensure_ascii=False) + COMMIT_METADATA_TERMINATOR
