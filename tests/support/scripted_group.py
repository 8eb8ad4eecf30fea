"""A consumer group of scripted members: each speaks the group protocol on a socket, none fetches.

Topics exist in the leader's metadata only, so a group may have any number of partitions.
"""

import socket
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Final

from kafka.errors import for_code
from kafka.protocol.consumer import JoinGroupRequest, SyncGroupRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.protocol.parser import KafkaProtocol

from trimtab.assignor.clients.kafka_python import TrimtabAssignor
from trimtab.assignor.clients.leader_plugin import decode_assignment_data, decode_subscriptions
from trimtab.assignor.model import TopicPartition
from trimtab.assignor.rebalance.leader import LeaderView

SESSION_MS: Final = 300_000  # they send no heartbeats
# JoinGroup 4 would answer the first join with a member id only; SyncGroup 3 is that of JoinGroup 3's time
JOIN_VERSION, SYNC_VERSION = 3, 2


class ScriptedMember:
    """A member with the plugin's subscriptions; `owned` are the partitions of its last assignment."""

    def __init__(
        self, bootstrap: str, group: str, instance: str, topic: str, view: Callable[[], LeaderView]
    ) -> None:
        self.instance = instance
        self.owned: frozenset[TopicPartition] = frozenset()
        self.awaits_round = False
        self._group = group
        self._topic = topic
        self._assignor = TrimtabAssignor(instance=instance, view=view)
        host, port = bootstrap.split(",", maxsplit=1)[0].rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=240)
        self._protocol = KafkaProtocol(client_id=instance)
        self._id = ""
        self._generation = -1

    def send_join(self) -> None:
        subscription = self._assignor.metadata([self._topic]).encode()
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="trimtab", metadata=subscription)
        request = JoinGroupRequest[JOIN_VERSION](
            group_id=self._group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self._id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        self._send(request)

    def receive_join(self) -> Any:
        """Return the response once all members have joined."""
        response = self._receive()
        self._id, self._generation = response.member_id, response.generation_id
        return response

    def send_sync(self, assignments: dict[str, bytes]) -> None:
        """Send the assignments; those of a follower are empty."""
        of_members = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=data)
            for member, data in assignments.items()
        ]
        request = SyncGroupRequest[SYNC_VERSION](
            group_id=self._group, generation_id=self._generation, member_id=self._id, assignments=of_members
        )
        self._send(request)

    def receive_assignment(self) -> None:
        """Take the partitions of the broker's answer."""
        assignment = ConsumerProtocolAssignment.decode(self._receive().assignment)
        self._assignor.on_assignment(assignment, self._generation)
        self.owned = frozenset(TopicPartition(p.topic, p.partition) for p in assignment.partitions())
        self.awaits_round = decode_assignment_data(assignment.user_data).round_follows

    def lead(self, members: Sequence[Any], partitions: int) -> dict[str, bytes]:
        """Return each member's assignment of a topic with that many partitions."""
        cluster = SimpleNamespace(
            partitions_for_topic=lambda _: range(partitions), brokers=list, _partitions={}
        )
        subscriptions = decode_subscriptions({m.member_id: m.metadata for m in members})
        return self._assignor.assign_decoded(cluster, subscriptions)

    @property
    def fault(self) -> str:
        return self._assignor.fault

    def close(self) -> None:
        self._socket.close()

    def _send(self, request: Any) -> None:
        self._protocol.send_request(request)
        self._socket.sendall(self._protocol.send_bytes())

    def _receive(self) -> Any:
        responses: list[Any] = []
        while not responses:
            data = self._socket.recv(1 << 20)
            assert data, f"{self.instance}: the broker closed the connection"
            responses = self._protocol.receive_bytes(data)
        ((_, response),) = responses
        if response.error_code:
            raise for_code(response.error_code)(self.instance)
        return response


def run_round(members: Sequence[ScriptedMember], partitions: int) -> None:
    """Rebalance members whose joins have been sent."""
    joined = [member.receive_join() for member in members]
    for member, response in zip(members, joined, strict=True):
        is_leader = response.leader == response.member_id
        member.send_sync(member.lead(response.members, partitions) if is_leader else {})
    for member in members:
        member.receive_assignment()
