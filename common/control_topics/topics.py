"""Default names of the control topics. All three are compacted."""

from typing import Final

# key: group and topic; value: TopicWriteRates; the paper's monitor.writeSpeed
WRITE_RATE_TOPIC: Final = "trimtab.write-rates"
# key: group; value: GroupPlan; the paper's consumer.metadata
PLAN_TOPIC: Final = "trimtab.plans"
# key: group and slot; value: DecisionRecord; not in the paper
DECISION_TOPIC: Final = "trimtab.decisions"
