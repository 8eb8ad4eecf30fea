"""Names of members whose clients tell none, so that plans and replicas find them. Pure.

1. A member is named by its replica, if the target knows its address and no other member has the same one;
   else by its `group.instance.id`; else by its client id; and if another member has that name, too, by its
   member id.
2. Where each replica runs several consumers, all members of an address are its replica's, and members that
   share a name are numbered in the order of their ids, which begin with the client id (`replica_names`).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Final

from trimtab.common.replica_names import number_shared_names
from trimtab.sidecar.model.observation import ObservedGroup, ObservedMember

# The coordinator forms ids of these: group.instance.id, else client.id, "-", and a UUID.
_MEMBER_ID: Final = re.compile(r"(.*)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """What the coordinator tells of a member."""

    id: str
    client_id: str
    host: str  # IP address of its client
    instance_id: str | None  # group.instance.id


def name_members(
    members: Iterable[MemberIdentity],
    replicas: Mapping[str, str] | None = None,
    consumers_per_replica: int = 1,
) -> dict[str, str]:
    """Return names by member id; `replicas` are names by IP address."""
    known = sorted(members, key=lambda m: m.id)
    is_alone = consumers_per_replica == 1
    hosts = {m.id: _normalize_address(m.host) for m in known}
    count = Counter(hosts.values())
    addresses = {_normalize_address(host): name for host, name in (replicas or {}).items()}
    here = {host: name for host, name in addresses.items() if count[host] == 1 or not is_alone}
    named = {m.id: here.get(hosts[m.id]) or m.instance_id or m.client_id for m in known}
    if not is_alone:
        return dict(zip(named, number_shared_names(named.values()), strict=True))
    shared = Counter(named.values())
    return {id_: name if name and shared[name] == 1 else id_ for id_, name in named.items()}


def _normalize_address(host: str) -> str:
    # brokers write fd00:0:0:0:0:0:0:5, Kubernetes fd00::5
    try:
        return str(ip_address(host))
    except ValueError:
        return host


def name_observed_members(
    group: ObservedGroup, replicas: Mapping[str, str], consumers_per_replica: int = 1
) -> ObservedGroup:
    """Return the group with these names as instances, which were client ids."""
    identities = [
        MemberIdentity(m.id, m.instance, m.host, find_instance_id(m.id, m.instance)) for m in group.members
    ]
    names = name_members(identities, replicas, consumers_per_replica)
    return replace(group, members=tuple(replace(m, instance=names[m.id]) for m in group.members))


def number_observed_members(group: ObservedGroup) -> ObservedGroup:
    """Return the group with client ids that members share numbered, as its leader does (`plan_target`)."""
    known = sorted(group.members, key=lambda m: m.id)
    names = number_shared_names(m.instance for m in known)
    named = (replace(m, instance=name) for m, name in zip(known, names, strict=True))
    return replace(group, members=tuple(named))


def distinguish_members(group: ObservedGroup) -> ObservedGroup:
    """Replace shared or empty client ids by member ids."""
    names = [m.instance for m in group.members]
    # a client id is optional: without one all librdkafka members are called "rdkafka"
    shared = {name for name in names if names.count(name) > 1 or not name}
    members = tuple(replace(m, instance=m.id) if m.instance in shared else m for m in group.members)
    return replace(group, members=members)


def count_members(members: Iterable[ObservedMember], replicas: Mapping[str, str]) -> Counter[str]:
    """Return the number of members at each replica's address; `replicas` are names by IP address."""
    addresses = {_normalize_address(host): name for host, name in replicas.items()}
    hosts = (_normalize_address(m.host) for m in members)
    return Counter(addresses[host] for host in hosts if host in addresses)


def find_instance_id(member_id: str, client_id: str) -> str | None:
    """Return the `group.instance.id` that a member id begins with; None if it begins with the client id."""
    # DescribeGroups tells it, but librdkafka's safe form of that request (`BrokerClient`) does not
    matched = _MEMBER_ID.fullmatch(member_id)
    return matched[1] if matched and matched[1] not in ("", client_id) else None
