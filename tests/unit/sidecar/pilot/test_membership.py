"""What a pilot's heartbeats tell the coordinator."""

from typing import Any

from trimtab.sidecar.pilot.membership import PilotMembership, carry_pieces

TOPIC = "trimtab.plans.pilot"


class FakeCoordinator:
    """What a coordinator keeps of one member, and how often it has computed a target, and by which rack."""

    def __init__(self) -> None:
        self.rack = ""
        self.topics: list[str] = []
        self.epoch = 0
        self.targets: list[str] = []

    def handle(self, fields: dict[str, Any]) -> int:
        assert fields["member_epoch"] in (0, self.epoch), "fenced"
        self.rack = fields.get("rack_id", self.rack)
        topics = fields.get("subscribed_topic_names", self.topics)
        if topics != self.topics:
            self.topics, self.epoch = topics, self.epoch + 1
            self.targets.append(self.rack)
        return self.epoch


def send(pilot: PilotMembership, coordinator: FakeCoordinator) -> PilotMembership:
    return pilot.record_response(coordinator.handle(pilot.build_heartbeat(TOPIC)))


def settle(pilot: PilotMembership, coordinator: FakeCoordinator) -> PilotMembership:
    for _ in range(2):  # a join, and the change of the subscription after it
        pilot = send(pilot, coordinator)
    assert not pilot.is_pending
    return pilot


def test_each_plan_starts_an_assignment() -> None:
    """A new rack comes with another subscription; a heartbeat without news repeats neither."""
    coordinator = FakeCoordinator()
    pilot = settle(PilotMembership("p", "one"), coordinator)
    quiet = pilot.build_heartbeat(TOPIC)
    assert "rack_id" not in quiet
    assert "subscribed_topic_names" not in quiet
    for rack in ("two", "three", "two"):
        pilot = send(pilot.carry(rack), coordinator)
        assert coordinator.targets[-1] == rack
        assert not pilot.is_pending
    assert pilot.carry("two") is pilot


def test_a_plan_is_carried_out_whatever_the_coordinator_has_seen_before_an_error() -> None:
    """The heartbeat with the plan, or its response, may be lost; the next plan may come meanwhile."""
    for arrives in (True, False):
        for later in ("two", "three"):
            coordinator = FakeCoordinator()
            pilot = settle(PilotMembership("p", "one"), coordinator).carry("two")
            if arrives:
                coordinator.handle(pilot.build_heartbeat(TOPIC))
            pilot = settle(pilot.record_loss().carry(later), coordinator)
            assert coordinator.targets[-1] == later


def test_the_successors_plan_replaces_that_of_a_dead_sidecar() -> None:
    """Its pilots have the same ids, whatever the subscription was that the dead one left."""
    for plans in (("one",), ("one", "two")):
        coordinator = FakeCoordinator()
        pilot = PilotMembership("p", plans[0])
        for plan in plans:
            pilot = settle(pilot.carry(plan), coordinator)
        settle(PilotMembership("p", "mine"), coordinator)
        assert coordinator.targets[-1] == "mine"


def test_a_join_tells_all_that_the_coordinator_needs() -> None:
    """Rebalance timeout, owned partitions and the assignor are required or asked for once."""
    pilot = PilotMembership("p", "one")
    fields = pilot.build_heartbeat(TOPIC, "trimtab")
    assert fields["member_epoch"] == 0
    assert fields["rebalance_timeout_ms"] > 0
    assert fields["server_assignor"] == "trimtab"
    assert fields["topic_partitions"] == []
    assert pilot.record_response(3).build_heartbeat(TOPIC, "trimtab")["server_assignor"] is None


def test_a_plan_in_pieces_has_a_pilot_for_each() -> None:
    """A plan with fewer pieces leaves pilots to time out; one with more adds some."""
    one = carry_pieces((), ("a", "b"))
    assert [(p.member_id, p.rack) for p in one] == [("trimtab-pilot-1", "a"), ("trimtab-pilot-2", "b")]
    assert [p.rack for p in carry_pieces(one, ("c",))] == ["c"]
    assert len({p.member_id for p in carry_pieces(one, ("c", "d", "e"))}) == 3


def test_a_pilot_that_leaves_joins_again_with_its_plan() -> None:
    """What the group knew of it is gone."""
    pilot = PilotMembership("p", "one").record_response(3)
    leave = pilot.build_leave()
    assert (leave["member_id"], leave["member_epoch"]) == ("p", -1)
    assert pilot.record_loss().build_heartbeat(TOPIC)["rack_id"] == "one"
