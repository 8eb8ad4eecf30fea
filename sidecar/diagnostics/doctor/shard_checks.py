"""Checks of `trimtab doctor` about sidecars that divide the groups by a shard topic. They change nothing."""

from collections.abc import Iterable, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from trimtab.common.clock import Clock
from trimtab.common.errors import TrimtabError
from trimtab.common.units import format_count
from trimtab.sidecar.diagnostics.doctor.checks import (
    Finding,
    FindingLevel,
    check_rights,
    failed,
    name_operations,
    noted,
    passed,
)
from trimtab.sidecar.kafka.broker_client import BrokerClient
from trimtab.sidecar.kafka.cluster_client import format_error_with_grant
from trimtab.sidecar.leadership.group_shards import compute_shard
from trimtab.sidecar.settings.settings import SidecarSettings

MISSING: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND)
GRACE_S: Final = 1.0  # librdkafka reports its own timeout late, but with a better text


@dataclass(frozen=True, slots=True)
class ShardOwner:
    """A sidecar that is a member of the shard topic's group."""

    host: str
    shards: frozenset[int]


def run_shard_checks(settings: SidecarSettings, topic: str, clock: Clock) -> list[Finding]:
    """Return the findings about the shard topic and its members."""
    try:
        brokers = BrokerClient(settings.client_config, settings.group, settings.timeout, clock)
        with closing(brokers):
            return [*_check_brokers(brokers.admin, settings, topic)]
    except (KafkaException, FutureTimeout, TrimtabError) as error:
        text = str(error) or "the brokers did not answer"
        if isinstance(error, KafkaException):
            text = format_error_with_grant(error, f"Describe on topic {topic} and on group {topic}")
        return [failed(_name_check(topic), text, "run the doctor again")]


def _check_brokers(admin: Any, settings: SidecarSettings, topic: str) -> Iterable[Finding]:
    options = {"include_authorized_operations": True, "request_timeout": settings.timeout}
    wait = settings.timeout + GRACE_S
    found = _await_existing(admin.describe_topics(TopicCollection([topic]), **options)[topic], wait)
    group = _await_existing(admin.describe_consumer_groups([topic], **options)[topic], wait)
    count = None if found is None else len(found.partitions)
    members = () if group is None else group.members
    yield check_shards(topic, settings.group, count, [_read_owner(member, topic) for member in members])
    for kind, described in (("topic", found), ("group", group)):
        if described is not None:
            allowed = name_operations(described.authorized_operations)
            yield check_rights(f"{kind} {topic}", ("Read",), allowed)


def _await_existing(future: Any, seconds: float) -> Any:
    try:
        return future.result(timeout=seconds)
    except KafkaException as error:
        if error.args[0].code() in MISSING:
            return None
        raise


def _read_owner(member: Any, topic: str) -> ShardOwner:
    owned = member.assignment.topic_partitions if member.assignment is not None else ()
    return ShardOwner(member.host.lstrip("/"), frozenset(p.partition for p in owned if p.topic == topic))


def check_shards(topic: str, group: str, count: int | None, owners: Sequence[ShardOwner]) -> Finding:
    """Check that each shard has a sidecar and each sidecar a shard; `count` is None without the topic."""
    check = _name_check(topic)
    if count is None:
        return noted(check, "missing; the first sidecar creates it")
    if not owners:
        return failed(check, "no sidecar is a member of its group", "start the sidecars; read their logs")
    unowned = count - len(frozenset[int]().union(*(one.shards for one in owners)))
    if unowned:
        shards = f"{unowned} of {format_count(count, 'shard')}"
        text = f"{shards} without a sidecar: their group rebalances; run the doctor again"
        return noted(check, text)
    idle = sum(not one.shards for one in owners)
    if idle:
        remedy = f"add partitions to {topic}; groups then change their shards, and some their sidecars"
        text = f"{idle} of {format_count(len(owners), 'sidecar')} without a shard: the topic has only {count}"
        return Finding(check, FindingLevel.WARNING, text, remedy)
    number = compute_shard(group, count)
    host = next(one.host for one in owners if number in one.shards)
    where = f"group {group} is in shard {number}, of the sidecar at {host}"
    sidecars = format_count(len(owners), "sidecar has", "sidecars have")
    return passed(check, f"{sidecars} the {format_count(count, 'shard')}; {where}")


def _name_check(topic: str) -> str:
    return f"shard topic {topic}"
