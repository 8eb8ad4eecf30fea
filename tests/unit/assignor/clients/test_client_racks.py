"""Racks of replicas from the clients' metadata, whose partitions are a private attribute."""

from aiokafka.cluster import ClusterMetadata as AioMetadata
from aiokafka.protocol.metadata import MetadataResponse_v1
from kafka.cluster import ClusterMetadata
from kafka.protocol.metadata import MetadataResponse

from trimtab.assignor.clients import aiokafka, kafka_python
from trimtab.assignor.model import Load, TopicPartition
from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.model.replica_racks import ReplicaRacks
from trimtab.assignor.rebalance.leader import LeaderView

UNIVERSE = PartitionIndex.from_partitions(
    [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
)


def assert_replica_racks(found: ReplicaRacks) -> None:
    """Assert that t-0 is in a and b, t-1 in b and an unknown rack, and u unknown."""
    assert found.racks == ("a", "b")
    assert found.has_replica.tolist() == [[True, True], [False, True], [False, False]]
    assert found.known.tolist() == [True, False, False]


def test_kafka_python_knows_replicas_and_racks() -> None:
    """The private attribute of its metadata still has replicas by partition."""
    topic = MetadataResponse.MetadataResponseTopic
    broker = MetadataResponse.MetadataResponseBroker
    sent = MetadataResponse(
        version=9,
        brokers=[
            broker(node_id=node, host="h", port=node, rack=rack)
            for node, rack in ((1, "a"), (2, "b"), (3, None))
        ],
        cluster_id="c",
        controller_id=1,
        topics=[
            topic(
                error_code=0,
                name="t",
                is_internal=False,
                partitions=[
                    topic.MetadataResponsePartition(
                        error_code=0,
                        partition_index=number,
                        leader_id=2,
                        leader_epoch=0,
                        replica_nodes=replicas,
                        isr_nodes=replicas,
                        offline_replicas=[],
                    )
                    for number, replicas in ((0, [1, 2]), (1, [2, 3]))
                ],
            )
        ],
    )
    cluster = ClusterMetadata()
    cluster.update_metadata(MetadataResponse.decode(sent.encode(version=9), version=9))
    assert_replica_racks(kafka_python._load_replica_racks(cluster, UNIVERSE))


def test_aiokafka_knows_replicas_and_racks() -> None:
    """The private attribute of its metadata still has replicas by partition."""
    brokers = [(1, "h", 1, "a"), (2, "h", 2, "b"), (3, "h", 3, None)]
    partitions = [(0, 0, 2, [1, 2], [1, 2]), (0, 1, 2, [2, 3], [2, 3])]
    cluster = AioMetadata()
    cluster.update_metadata(MetadataResponse_v1(brokers, 1, [(0, "t", False, partitions)]))
    assert_replica_racks(aiokafka._load_replica_racks(cluster, UNIVERSE))


def test_with_settings_keeps_the_leaders_view() -> None:
    """A class with its own settings uses its own view."""
    view = LeaderView(Load({TopicPartition("t", 0): 1.0}))
    configured = aiokafka.EagerTrimtabAssignor.with_settings(view=lambda: view)
    assert configured._view_provider[0]() is view
