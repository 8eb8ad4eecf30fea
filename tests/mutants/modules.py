"""Modules to change, and the tests that guard each, in the order of their runs: the simulation comes last."""

from typing import Final

_UNIT: Final = "tests/unit/consumer_sdk"
_PLANS: Final = "tests/unit/assignor/rebalance"
_WRITER: Final = f"{_UNIT}/lake/writer"
_OFFSETS: Final = f"{_UNIT}/lake/offsets"
_KMQ: Final = (f"{_UNIT}/queues/test_redelivery_state.py", "tests/property/test_redelivery_state.py")
# 20 histories; `make simulate-faults` runs thousands
_SIMULATION: Final = (
    "tests/simulation/test_simulated_lake.py",
    "tests/simulation/test_histories.py::test_no_history_violates_an_invariant[1]",
)
_LAKE: Final = (_OFFSETS, _WRITER, *_SIMULATION)
_CHANGES: Final = (
    *(f"{_UNIT}/lake/changes", "tests/property/test_keyed_changes.py"),
    *(f"{_UNIT}/lake/bridge/test_arrow_rows.py", f"{_UNIT}/lake/formats/test_upsert_staging.py"),
)

GUARDED_MODULES: Final[dict[str, tuple[str, ...]]] = {
    "assignor/rebalance/cooperative.py": (
        *("tests/property/test_staging.py", "tests/unit/assignor/rebalance/test_leader.py"),
        *_SIMULATION,
    ),
    "assignor/rebalance/placement_repair.py": (
        *(f"{_PLANS}/test_placement_repair.py", f"{_PLANS}/test_plan_target.py"),
    ),
    "assignor/rebalance/plan_target.py": (f"{_PLANS}/test_plan_target.py",),
    "assignor/rebalance/plan_follower.py": (f"{_PLANS}/test_plan_follower.py",),
    "assignor/modes/task_groups.py": (
        *("tests/unit/assignor/modes/test_task_groups.py", "tests/property/test_task_groups.py"),
    ),
    "consumer_sdk/membership/lease.py": (f"{_UNIT}/membership/test_lease.py", *_SIMULATION),
    "consumer_sdk/lake/offsets/offset_codec.py": _LAKE,
    "consumer_sdk/lake/offsets/offset_gaps.py": (f"{_OFFSETS}/test_offset_gaps.py", *_LAKE),
    "consumer_sdk/lake/offsets/table_offsets.py": (f"{_OFFSETS}/test_table_offsets.py", *_LAKE),
    "consumer_sdk/lake/commits/fenced_commit.py": (f"{_UNIT}/lake/commits/test_fenced_commit.py", *_LAKE),
    "consumer_sdk/lake/writer/batches.py": (f"{_WRITER}/test_batches.py", *_LAKE),
    "consumer_sdk/lake/writer/partition_positions.py": (f"{_WRITER}/test_partition_positions.py", *_LAKE),
    "consumer_sdk/lake/flush/flush.py": (f"{_UNIT}/lake/flush/test_flush.py", *_LAKE),
    "consumer_sdk/lake/writer/halted_partitions.py": (
        *(f"{_WRITER}/test_halted_partitions.py", f"{_WRITER}/test_table_halts.py"),
    ),
    **{
        f"consumer_sdk/lake/{name}.py": (*(f"{_UNIT}/lake/{test}.py" for test in first), *_CHANGES)
        for name, first in {
            "changes/change_decoders": ("projection/test_keyed_projection",),
            "changes/change_formats": ("projection/test_keyed_projection",),
            "changes/change_rows": ("projection/test_keyed_projection",),
            "changes/change_settings": ("changes/test_change_settings",),
            "changes/json_change_schemas": ("changes/test_json_change_schemas",),
            "changes/keyed_changes": ("changes/test_keyed_changes",),
            "projection/keyed_projection": ("projection/test_keyed_projection",),
            "changes/truncations": ("projection/test_keyed_projection",),
        }.items()
    },
    "consumer_sdk/lake/decoding/decoded_records.py": (
        *(f"{_UNIT}/lake/projection/test_keyed_projection.py", *_CHANGES),
    ),
    "consumer_sdk/queues/ordered/key_ordering.py": (
        *(f"{_UNIT}/queues/test_key_ordering.py", "tests/property/test_key_ordering.py"),
    ),
    "consumer_sdk/queues/kmq/offset_ranges.py": _KMQ,
    "consumer_sdk/queues/kmq/redelivery_decision.py": (f"{_UNIT}/queues/test_redelivery_decision.py",),
    "consumer_sdk/queues/kmq/redelivery_state.py": _KMQ,
}
