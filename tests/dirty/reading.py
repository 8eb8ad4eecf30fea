"""Who reads what, and how often it commits: topics that nobody reads any more, outages, rare commits."""

from threading import Event
from time import monotonic

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as RawPartition

from dirty.run import DirtyRun, Figures, count_changes, find_figures, wait
from support.advised_group import AdvisedGroup, advise_group
from support.sidecar_bench import CAPACITY, PARTITIONS, Flow

OUTAGE_S = 75.0
COMMIT_S = 20.0  # ten windows of 2 s, as 300 s are ten of the default 30 s
RARE_S = 120.0


def measure_left_topics(run: DirtyRun) -> Figures:
    """A group that has left a topic with three times the load; then an outage of more than 60 s.

    Before its reader comes nobody tells which topics it reads: the sidecar says so and holds.
    """
    left, read = run.create_topic(), run.create_topic()
    for topic in (left, read):
        _commit_once(run.bootstrap, f"group-of-{read}", topic)
    flow = Flow(run.bootstrap, left)
    flow.rate = 3.0 * CAPACITY
    try:
        with advise_group(run.bootstrap, read, run.folder, is_away=True, topics=None) as group:
            run.drive(group.surfaces, "WriteRateUnknown", "RequestsFailed")
            counts = _watch_desired(group, 5.0)
            group.reader.is_away.clear()
            wait(lambda: not group.surfaces.list_conditions(), "the reader has come")
            counts += _watch_desired(group, 15.0)
            group.reader.is_away.set()
            counts += _watch_desired(group, OUTAGE_S)
            run.drive(group.surfaces, "NothingConsumed")
            partitions = find_figures(group.surfaces.ask("/metrics"), "trimtab_partitions")
    finally:
        flow.stop()
    return {"scalings_at_steady_load": count_changes(counts), "left_partitions": sum(partitions) - PARTITIONS}


def measure_rare_commits(run: DirtyRun) -> Figures:
    """Commits every ten windows: no swings, no consumer called stuck, until one partition is."""
    settings = {"capacity": 2 * CAPACITY, "scale-up-evaluation-window": "4 s"}
    with advise_group(run.bootstrap, run.create_topic(), run.folder, COMMIT_S, **settings) as group:
        group.flow.rate = CAPACITY
        wait(lambda: find_figures(group.surfaces.ask("/metrics"), "trimtab_replicas_desired"), "a count")
        counts = _watch_desired(group, RARE_S)
        told = [line for line in group.surfaces.lines if "Stuck" in line]
        is_learned = "Commits: every" in group.surfaces.run("explain")[1]
        group.reader.left = frozenset({0})
        run.drive(group.surfaces, "PartitionsStuck")
    return {
        "scalings_at_steady_load": count_changes(counts),
        "false_stuck": len(told),
        "unlearned_intervals": int(not is_learned),
    }


def _watch_desired(group: AdvisedGroup, seconds: float) -> list[float]:
    counts, begun = list[float](), monotonic()
    while monotonic() - begun < seconds:
        Event().wait(0.5)
        counts += find_figures(group.surfaces.ask("/metrics"), "trimtab_replicas_desired")
    return counts


def _commit_once(bootstrap: str, group: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    offsets = [RawPartition(topic, number, 0) for number in range(PARTITIONS)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
