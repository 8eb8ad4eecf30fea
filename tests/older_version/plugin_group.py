"""Members of a group with one version's plugin, in a process: a JSON request a line, and an answer each.

It uses only what the plugin had before plans carried a target, so it runs on that version's archive, too:

    PYTHONPATH=archive.zip python plugin_group.py m1 m2
"""

import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

import trimtab.assignor.rebalance.leader
from trimtab.assignor.clients.kafka_python import TrimtabAssignor
from trimtab.assignor.clients.leader_plugin import decode_assignment_data, decode_subscriptions
from trimtab.assignor.model import Load, TopicPartition
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.record_parts import PartAssembler

TOPIC = "orders"
HEURISTIC = "mwf"  # plain Python in every version


class PluginGroup:
    """Members by name, with one view of plan and load."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self.start_anew()

    def start_anew(self) -> None:
        """Replace all members by new ones, without a plan."""
        self._plan: GroupPlan | None = None
        self._rates: list[float] = []
        self._members = {n: TrimtabAssignor(HEURISTIC, instance=n, view=self._view) for n in self._names}

    def _view(self) -> LeaderView:
        rates = {TopicPartition(TOPIC, n): rate for n, rate in enumerate(self._rates)}
        return LeaderView(Load(rates), self._plan)

    def read(self, group: str, records: list[str], rates: list[float]) -> dict[str, Any]:
        """Read the records of a plan topic, and write rates by partition."""
        self._rates = rates
        assembler = PartAssembler(group)
        for record in records:
            if value := assembler.add_record(b64decode(record)):
                self._plan = GroupPlan.decode(value)
        plan = self._plan
        return {
            "module": trimtab.assignor.rebalance.leader.__file__,
            "fields": [] if plan is None else sorted(plan.__slots__),
            "plan": None if plan is None else [plan.epoch, plan.replicas, list(plan.draining)],
        }

    def join(self) -> dict[str, str]:
        """Return the encoded subscription of each member."""
        return {n: encode_base64(m.metadata([TOPIC]).encode()) for n, m in self._members.items()}

    def lead(self, name: str, members: Mapping[str, str]) -> dict[str, Any]:
        """Let a member lead a round; return the encoded assignments."""
        numbers = {TOPIC: range(len(self._rates))}
        cluster = SimpleNamespace(partitions_for_topic=numbers.get, brokers=list, _partitions={})
        subscriptions = decode_subscriptions({n: b64decode(data) for n, data in members.items()})
        assigned = self._members[name].assign_decoded(cluster, subscriptions)
        return {n: encode_base64(data) for n, data in assigned.items()}

    def take(self, generation: int, assignments: Mapping[str, str]) -> dict[str, Any]:
        """Take the members' assignments; return what each owns."""
        taken = {n: ConsumerProtocolAssignment.decode(b64decode(assignments[n])) for n in self._members}
        for name, assignment in taken.items():
            self._members[name].on_assignment(assignment, generation)
        return {
            name: {
                "owned": sorted(p.partition for p in assignment.partitions()),
                "awaits_round": decode_assignment_data(assignment.user_data).round_follows,
                "fault": self._members[name].fault,
            }
            for name, assignment in taken.items()
        }


def encode_base64(data: bytes) -> str:
    return b64encode(data).decode()


def main() -> None:
    """Answer each request: a method's name and its arguments."""
    group = PluginGroup(sys.argv[1:])
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        sys.stdout.write(json.dumps(getattr(group, method)(*arguments)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
