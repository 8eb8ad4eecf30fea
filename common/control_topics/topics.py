"""Default names of the control topics. All three are compacted."""

from typing import Final

WRITE_RATE_TOPIC: Final = "trimtab.write-rates"
"""Key: group and topic; value: `TopicWriteRates`. The paper's `monitor.writeSpeed`."""

PLAN_TOPIC: Final = "trimtab.plans"
"""Key: group; value: `GroupPlan`. The paper's `consumer.metadata`."""

DECISION_TOPIC: Final = "trimtab.decisions"
"""Key: group and slot; value: `DecisionRecord`. Not in the paper."""
