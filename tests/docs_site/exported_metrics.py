"""Registries with a sample of every metric, for the reference page and the test of dashboard and alerts."""

from typing import Final

import numpy as np
from prometheus_client import CollectorRegistry

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.consumer_sdk.lake.flush.metrics import LakeMetrics
from trimtab.sidecar.decision.condition import ConditionType, build_condition
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction, ScalingDecision
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.records.plan_outcome import PlanOutcome
from trimtab.sidecar.reporting.metrics import SidecarMetrics

PARTITION: Final = TopicPartition("orders", 0)


def build_sidecar_registry(*, leading: bool = True) -> CollectorRegistry:
    """Return the registry of a sidecar after an iteration in which every value is known."""
    whole = DecisionMetrics(**dict.fromkeys(DecisionMetrics.__dataclass_fields__, 1))
    report = IterationReport(
        time=1.0,
        decision=ScalingDecision(ScalingAction.HOLD, (), whole),
        write_rates={PARTITION: PartitionLoad(1.0, 1.0, 1.0, 1)},
        epoch=1,
        is_group_known=True,
        decision_seconds=1.0,
        iteration_seconds=1.0,
        handovers={PARTITION: 1.0},
        learned_capacities={"one": 1.0},
        capacity=1.0,
        plan_outcome=PlanOutcome(1, 1, 1, 1.0, 1.0, 0, is_settled=True),
        is_leader=leading,
        conditions=(build_condition(ConditionType.PARTITIONS_STUCK, "NoCommits", "", ""),),
    )
    sidecar = SidecarMetrics()
    sidecar.record_iteration("lake", report)
    return sidecar.registry


def build_consumer_registry() -> CollectorRegistry:
    """Return the registry of a consumer that has written, lost, halted and flushed."""
    consumer = LakeMetrics()
    consumer.count_written("orders", 1, 1)
    consumer.count_lost(PARTITION, 1)
    consumer.set_halted("orders", 1)
    consumer.set_table_halted("orders", halted=True)
    consumer.observe_flush("orders", 1.0)
    consumer.observe_freshness("orders", np.array([1.0]))
    return consumer.registry
