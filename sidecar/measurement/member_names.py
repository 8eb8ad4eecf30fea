"""Names of members whose clients tell none, so that plans and replicas find them. Pure.

A member is named by its replica, if the target knows its address and no other member has the same one;
else by its `group.instance.id`; else by its client id; and if another member has that name, too, by its
member id.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Final

from trimtab.sidecar.measurement.observation import ObservedGroup

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
    members: Iterable[MemberIdentity], replicas: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return names by member id; `replicas` are names by IP address."""
    known = tuple(members)
    hosts = {m.id: _normalize_address(m.host) for m in known}
    count = Counter(hosts.values())
    addresses = {_normalize_address(host): name for host, name in (replicas or {}).items()}
    here = {host: name for host, name in addresses.items() if count[host] == 1}
    named = {m.id: here.get(hosts[m.id]) or m.instance_id or m.client_id for m in known}
    shared = Counter(named.values())
    return {id_: name if name and shared[name] == 1 else id_ for id_, name in named.items()}


def _normalize_address(host: str) -> str:
    # brokers write fd00:0:0:0:0:0:0:5, Kubernetes fd00::5
    try:
        return str(ip_address(host))
    except ValueError:
        return host


def name_observed_members(group: ObservedGroup, replicas: Mapping[str, str]) -> ObservedGroup:
    """Return the group with these names as instances, which were client ids."""
    identities = [
        MemberIdentity(m.id, m.instance, m.host, find_instance_id(m.id, m.instance)) for m in group.members
    ]
    names = name_members(identities, replicas)
    return replace(group, members=tuple(replace(m, instance=names[m.id]) for m in group.members))


def find_instance_id(member_id: str, client_id: str) -> str | None:
    """Return the `group.instance.id` that a member id begins with; None if it begins with the client id."""
    # DescribeGroups tells it, but librdkafka's safe form of that request (`BrokerClient`) does not
    matched = _MEMBER_ID.fullmatch(member_id)
    return matched[1] if matched and matched[1] not in ("", client_id) else None
