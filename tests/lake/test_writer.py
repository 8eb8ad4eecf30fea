"""The writer against a real Spark session and real Iceberg tables."""

import pytest

from trimtab.assignor.model import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
pytestmark = pytest.mark.spark


def test_records_and_marks_land_in_one_commit(writers, lake, rows, namespace):
    """Every record is in the table once, and the table knows where to go on."""
    consumer, writer = writers({P0: [b"a", b"b"], P1: [b"c"]})
    consumer.join(writer, P0, P1)
    writer.write(consumer.consume(10))
    writer.flush()
    table = f"{namespace}.orders"
    assert rows(table) == [("orders", 0, 0), ("orders", 0, 1), ("orders", 1, 0)]
    marks = lake.open(table).look().marks
    assert (marks.of("g", P0), marks.of("g", P1)) == (2, 1)
    assert consumer.committed == {P0: 2, P1: 1}
