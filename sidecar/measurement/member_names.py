"""Instance names of members whose clients were not written for plans. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol


class MemberIdentity(Protocol):
    """What the coordinator tells of a member."""

    @property
    def id(self) -> str:
        """Member id."""
        ...

    @property
    def instance_id(self) -> str | None:
        """Its group.instance.id."""
        ...

    @property
    def client_id(self) -> str:
        """Its client.id."""
        ...

    @property
    def host(self) -> str:
        """Address of its client, like "/10.1.2.3"."""
        ...


def name_members(
    members: Iterable[MemberIdentity], replicas: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return instance names by member id; `replicas` are names by IP address, where the target knows them.

    A member is named by its replica, else its group.instance.id, else its client id if no other member
    has the same name, else its member id.
    """
    known = replicas or {}
    named = {m.id: known.get(m.host.lstrip("/")) or m.instance_id or m.client_id for m in members}
    shared = Counter(named.values())
    return {id_: name if name and shared[name] == 1 else id_ for id_, name in named.items()}
