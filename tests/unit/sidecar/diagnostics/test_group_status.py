"""Status shown by `trimtab top`, from snapshots."""

import json
import re
from dataclasses import replace
from io import StringIO
from threading import Event
from typing import Any

import pytest
from rich.console import Console

from trimtab.assignor.model import TopicPartition
from trimtab.cli.main import main
from trimtab.cli.signals import SIGNAL_POLL_INTERVAL_S, run_interruptible
from trimtab.cli.top import run
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.units import format_age
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction
from trimtab.sidecar.diagnostics.group_status import (
    ConsumerState,
    GroupStatus,
    LiveGroupSnapshot,
    build_group_status,
    keep_last_status,
)
from trimtab.sidecar.errors import BrokerTimeoutError
from trimtab.sidecar.leadership.group_ownership import SILENCE_GRACE_S
from trimtab.sidecar.model.observation import GroupState, ObservedGroup, ObservedMember
from trimtab.sidecar.plan_carrier import CarrierStatus
from trimtab.sidecar.records.decision_record import DecisionRecord, SidecarIdentity
from trimtab.sidecar.records.plan_outcome import PlanOutcome

P = tuple(TopicPartition("t", n) for n in range(4))
PLAN = GroupPlan("g", 3, 0.0, 2, "steady", 100.0, 0.9, draining=("b",), capacities={"a": 50.0})
NOW = 1000.0


def record(until: float = NOW, **given: Any) -> DecisionRecord:
    body: dict[str, Any] = {
        "group": "g", "number": 1, "time": 900.0, "until": until, "iterations": 1, "interval": 10.0,
        "epoch": 3, "action": ScalingAction.HOLD, "reasons": ("2 is right",),
        "metrics": DecisionMetrics(desired_replicas=2), "capacity": 100.0, "headroom": 0.9,
        "partitions_by_instance": {"a": 2, "b": 1, "c": 0},
    }  # fmt: skip
    return DecisionRecord(**{**body, **given})


def snapshot(**given: Any) -> LiveGroupSnapshot:
    """Two members, "b" of them draining; one partition of unknown load, and one without an owner."""
    readers = (ObservedMember("1", "a", frozenset(P[:2])), ObservedMember("2", "b", frozenset(P[2:3])))
    loads = {
        P[0]: PartitionLoad(10.0, backlog_bytes=100.0, required_bytes_per_s=30.0),
        P[1]: PartitionLoad(),
        P[2]: PartitionLoad(20.0, backlog_bytes=0.0),
        P[3]: PartitionLoad(5.0),
    }
    group = ObservedGroup(GroupState.STABLE, readers)
    body: dict[str, Any] = {"group": group, "write_rates": loads, "plan": PLAN, "rate_source": "given"}
    return LiveGroupSnapshot(**{"time": NOW, "decisions": (record(),), **body, **given})


def states(status: GroupStatus) -> dict[str, ConsumerState]:
    return {row.name: row.state for row in status.consumers}


def test_status_has_every_consumer() -> None:
    """Each consumer has sums of its known loads, its learned capacity and its fill."""
    status = build_group_status(snapshot())
    a, b = status.consumers[0], status.consumers[1]
    assert (a.load.partitions, a.load.unknown_partitions, a.load.write_rate, a.load.backlog) == (
        2,
        1,
        10,
        100,
    )
    assert (a.capacity, a.fill) == (50.0, pytest.approx(0.6))
    assert (b.capacity, b.fill, b.state) == (100.0, pytest.approx(0.2), ConsumerState.DRAINING)


def test_status_has_the_groups_totals() -> None:
    """It has the counts of plan and decision, and the number of unowned partitions."""
    status = build_group_status(snapshot())
    assert (status.running, status.planned, status.desired, status.unowned_partitions) == (1, 2, 2, 1)
    assert (
        status.total_load.partitions,
        status.total_load.unknown_partitions,
        status.total_load.required_rate,
    ) == (4, 1, 55.0)
    assert status.sidecar_summary == "decision 0 s ago: hold: 2 is right"


def test_status_shows_a_decision_that_was_not_carried_out() -> None:
    """The summary ends with the failure."""
    status = build_group_status(snapshot(decisions=(record(failure="quota exceeded"),)))
    assert status.sidecar_summary == "decision 0 s ago: hold: 2 is right; not done: quota exceeded"
    assert status.last_decision == "hold: 2 is right; not done: quota exceeded"


def test_status_tells_who_carries_plans_out() -> None:
    """Of a group of any client, as the active sidecar has recorded it."""
    carrier = CarrierStatus(is_steering=False, text="unsteered: a-1 leads", since=NOW)
    stored = DecisionRecord.decode(record(carrier=carrier).encode())
    status = build_group_status(snapshot(decisions=(stored,)))
    assert status.carrier == carrier
    assert run.build_status_body(status, "g")["carrier"]["is_steering"] is False
    assert carrier.format_line() == "Plan carrier: unsteered: a-1 leads (since 1970-01-01 00:16:40 UTC)"


def test_status_has_the_outcome_of_the_plan() -> None:
    """JSON and heading tell what was done of the plan in force, as the active sidecar saw it."""
    outcome = PlanOutcome(3, 1, 5, 0.72, 0.87, 0, is_settled=True)
    status = build_group_status(snapshot(decisions=(record(outcome=outcome),)))
    assert status.plan_outcome == outcome
    assert run.build_status_body(status, "g")["plan_outcome"]["off_plan"] == 0
    out = StringIO()
    Console(file=out, width=120).print(run.build_status_table(status, "g"))
    assert "plan 3 carried out: 5 moves, R 0.72, fullest 87%; as planned" in out.getvalue()
    stale = build_group_status(snapshot(decisions=(record(NOW - 600, outcome=outcome),)))
    assert stale.plan_outcome is None


def test_missing_consumer_is_dead() -> None:
    """A consumer of the last decision or an earlier snapshot is dead unless drained or stopped."""
    assert states(build_group_status(snapshot()))["c"] is ConsumerState.DEAD
    assert (
        states(build_group_status(snapshot(decisions=(), known_consumers=frozenset({"d"}))))["d"]
        is ConsumerState.DEAD
    )
    stopped = record(action=ScalingAction.STOP, replicas_to_stop=("c",))
    assert "c" not in states(build_group_status(snapshot(decisions=(stopped, record()))))
    gone = replace(PLAN, draining=("b", "c"))
    assert "c" not in states(build_group_status(snapshot(plan=gone)))


def test_unknown_group_has_no_dead_consumers() -> None:
    """Without a member list no consumer is declared dead."""
    assert (
        build_group_status(snapshot(group=ObservedGroup(), known_consumers=frozenset({"d"}))).consumers == ()
    )


def test_old_decision_means_no_active_sidecar() -> None:
    """After three intervals and a grace period only the plan counts, and no consumer is dead."""
    status = build_group_status(snapshot(decisions=(record(NOW - 30.0 - SILENCE_GRACE_S - 1),)))
    assert not status.is_managed
    assert status.desired is None
    assert "its sidecar, silent for 46 s; the plan of epoch 3 stays in force" in status.sidecar_summary
    assert ConsumerState.DEAD not in states(status).values()
    assert build_group_status(snapshot(decisions=(record(NOW - 30.0 - SILENCE_GRACE_S),))).is_managed


def test_summary_names_the_sidecar() -> None:
    """It names the author of the last decision, and whether that sidecar has ended."""
    by = SidecarIdentity("id", "node-1", 7, 1.7e9, 2)
    managed = build_group_status(snapshot(decisions=(record(NOW - 3.0, author=by),)))
    assert managed.sidecar_summary.startswith("managed by node-1 (pid 7, since 2023-11-14 22:13:20 UTC); ")
    left = build_group_status(snapshot(decisions=(record(NOW - 3.0, author=by, is_final=True),)))
    assert not left.is_managed
    assert "node-1 (pid 7, since 2023-11-14 22:13:20 UTC), ended 3 s ago" in left.sidecar_summary


def test_summary_without_a_sidecar() -> None:
    """Without plan and decision the summary says so, and the given capacity is used."""
    status = build_group_status(snapshot(plan=None, decisions=(), capacity=40.0))
    assert status.sidecar_summary.startswith("no sidecar manages this group: no plan, no decision")
    assert status.consumers[0].fill == pytest.approx(0.75)
    assert set(states(status).values()) == {ConsumerState.RUNNING}
    assert build_group_status(snapshot(plan=None, decisions=())).consumers[0].fill is None


def test_unknown_values_are_question_marks() -> None:
    """An unknown value is never shown as 0; a dead consumer has no figures."""
    status = build_group_status(snapshot(plan=None, write_rates={}))
    assert run.format_figures(status.consumers[0]) == ("2 (2 ?)", "?", "?", "?", "?", "?")
    dead = next(row for row in build_group_status(snapshot()).consumers if row.state is ConsumerState.DEAD)
    assert set(run.format_figures(dead)) == {"-"}


def test_heading_has_the_totals() -> None:
    """It has counts, partitions, rates and their source."""
    heading = run.format_heading(build_group_status(snapshot()), "g")
    assert "group g (stable): 1 running, 2 planned, 2 desired; 4 partitions, 1 of them" in heading
    assert "writing 35 B/s, required 55 B/s, backlog 100 B (given)" in heading


def test_heading_has_no_counts_of_a_sidecar_that_there_is_not() -> None:
    """Without a plan and a decision only the running consumers are counted; the line below says why."""
    heading = run.format_heading(build_group_status(snapshot(plan=None, decisions=())), "g")
    assert "(stable): 2 running; 4 partitions" in heading


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3, "0 s"), (25, "25 s"), (180, "3 min"), (9000, "2.5 h"), (400_000, "5 days")]
)
def test_ages_have_readable_units(seconds: float, text: str) -> None:
    """Ages are shown in seconds, minutes, hours or days."""
    assert format_age(seconds) == text


def _ended(seconds: float) -> bool:
    """Report a signal between two readings, not during one."""
    return seconds > SIGNAL_POLL_INTERVAL_S


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `trimtab top` on snapshots; a signal ends it after the first."""

    def call(what: LiveGroupSnapshot, *words: str) -> tuple[int, str, str]:
        class Given:
            def __init__(self, *_: Any, **__: Any) -> None: ...

            def read_snapshot(self) -> LiveGroupSnapshot:
                return what

            def close(self) -> None: ...

        monkeypatch.setattr("trimtab.cli.top.run.LiveGroupReader", Given)
        monkeypatch.setattr("trimtab.cli.top.run.install_signal_waiter", lambda: _ended)
        monkeypatch.setenv("COLUMNS", "160")
        code = main(["top", "--bootstrap", "nowhere:1", "--group", "g", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_once_prints_a_table(shown: Any) -> None:
    """--once prints the sidecar's state and a row for each consumer."""
    code, out, _ = shown(snapshot(), "--once")
    assert code == 0
    assert "decision 0 s ago: hold: 2 is right" in out
    assert [word for word in ("draining", "running", "dead") if word not in out] == []


def test_once_prints_json(shown: Any) -> None:
    """--format json has the same values, unrounded."""
    code, out, _ = shown(snapshot(), "--once", "--format", "json")
    body = json.loads(out)
    assert code == 0
    assert (body["group"], body["planned"], body["is_managed"]) == ("g", 2, True)
    assert body["consumers"][0]["fill"] == pytest.approx(0.6)


def test_live_view_ends_at_a_signal(shown: Any) -> None:
    """Without --once it prints a table or JSON line for each reading until a signal."""
    code, out, _ = shown(snapshot())
    assert code == 0
    assert "draining" in out
    code, out, _ = shown(snapshot(), "--format", "json")
    assert code == 0
    assert json.loads(out)["running"] == 1


def test_live_view_survives_a_broker_outage(shown: Any) -> None:
    """The live view shows the errors below the table."""
    code, out, _ = shown(snapshot(group=ObservedGroup(), errors=("no Kafka broker answers at x",)))
    assert code == 0
    assert "no Kafka broker answers" in out


def test_unknown_group_is_an_error(shown: Any) -> None:
    """A wrong name ends --once with exit code 1 and a hint; the live view shows it."""
    nothing = LiveGroupSnapshot(NOW, ObservedGroup(GroupState.EMPTY), {}, "measured here")
    code, out, err = shown(nothing, "--once")
    assert (code, out) == (1, "")
    assert "there is no group 'g'" in err
    assert "there is no group 'g'" in shown(nothing)[1]


def test_unreachable_broker_prints_no_table(shown: Any) -> None:
    """Without a broker the command prints what to check."""
    code, out, err = shown(
        snapshot(group=ObservedGroup(), errors=("no Kafka broker answers at x",)), "--once"
    )
    assert (code, out) == (1, "")
    assert "no Kafka broker answers" in err


@pytest.mark.parametrize("words", [("--interval", "0"), ("--window", "0 s")])
def test_intervals_must_be_positive(shown: Any, words: tuple[str, ...]) -> None:
    """An interval of 0 or less is rejected."""
    code, _, err = shown(snapshot(), *words)
    assert code == 2
    assert "above 0" in err


def test_table_fits_eighty_columns() -> None:
    """Long names fold; neither names nor states are cut."""
    pod = "lake-consumer-6b60d8c84ffcb6d-b2x8v"
    loads = {P[0]: PartitionLoad(9e8, backlog_bytes=9.9e11, required_bytes_per_s=9e8)}
    group = ObservedGroup(GroupState.STABLE, (ObservedMember("1", pod, frozenset(P[:1])),))
    plan = replace(PLAN, draining=(pod,), capacities={pod: 9e8})
    status = build_group_status(snapshot(group=group, write_rates=loads, plan=plan))
    console = Console(width=80, record=True, file=StringIO())
    console.print(run.build_status_table(status, "g"))
    lines = console.export_text().splitlines()
    assert pod in "".join(line.split(" ")[0] for line in lines)
    assert any("900.0 MB/s" in line and "100%" in line and "draining" in line for line in lines)


def test_uuids_have_one_row_each() -> None:
    """Names are shortened in the middle to the terminal's width, and stay different."""
    names = [f"orders-{n:08x}-6b1e-4c7e-9d53-0a8f1b2c9c1b" for n in range(3)]
    members = (ObservedMember(n, n, frozenset(P[i : i + 1])) for i, n in enumerate(names))
    status = build_group_status(snapshot(group=ObservedGroup(GroupState.STABLE, tuple(members))))
    console = Console(width=80, record=True, file=StringIO())
    console.print(run.build_status_table(status, "g", 80))
    rows = [line for line in console.export_text().splitlines() if line.startswith("orders-")]
    assert len({row.split()[0] for row in rows}) == len(rows) == len(names)


def test_last_status_stays_during_an_outage() -> None:
    """The last values stay, with their time and the start of the outage."""
    good = build_group_status(snapshot())
    nothing = LiveGroupSnapshot(NOW + 5, ObservedGroup(), {}, "measured here", errors=("no broker answers",))
    away = keep_last_status(
        keep_last_status(good, build_group_status(nothing)),
        build_group_status(replace(nothing, time=NOW + 9)),
    )
    assert (away.consumers, away.time, away.unreachable_since) == (good.consumers, NOW, NOW + 5)
    output = printed(away)
    assert re.search(r"broker unreachable since \S+ \w+, last seen at ", output)
    assert "no broker answers" in output
    assert "partitions" in output
    first = printed(keep_last_status(None, build_group_status(nothing)))
    assert "never reached" in first
    assert "0 B/s" not in first
    assert keep_last_status(away, good).unreachable_since is None


def test_absent_group_replaces_the_table() -> None:
    """A wrong name is reported instead of an empty table."""
    status = build_group_status(LiveGroupSnapshot(NOW, ObservedGroup(GroupState.EMPTY), {}, "measured here"))
    assert status.is_absent
    assert "there is no group 'g'" in printed(status)
    assert not build_group_status(snapshot()).is_absent


def printed(status: GroupStatus) -> str:
    out = StringIO()
    Console(file=out, width=200).print(run.build_status_table(status, "g"))
    return out.getvalue()


def test_signal_interrupts_a_blocked_request() -> None:
    """A client library that waits for a broker does not delay the end."""
    never = Event()
    with pytest.raises(SystemExit):
        run_interruptible(never.wait, lambda seconds: seconds > 0)
    never.set()


def test_interruptible_call_returns_result_and_error() -> None:
    """The caller gets the result of the thread, or its error."""

    def fails() -> None:
        raise BrokerTimeoutError("no answer")

    wait = Event().wait
    assert run_interruptible(lambda: 3, wait) == 3
    with pytest.raises(BrokerTimeoutError, match="no answer"):
        run_interruptible(fails, wait)
