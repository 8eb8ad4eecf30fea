"""Names of dead-letter tables belong to the sink."""

import pyarrow as pa
import pytest

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import TableNameCollisionError
from trimtab.consumer_sdk.lake.decoding.spark_frames import DecodedFrames
from trimtab.consumer_sdk.lake.model.table_names import TableNames, dead_letter_table
from trimtab.consumer_sdk.lake.projection import projection
from trimtab.consumer_sdk.lake.writer.ingest import parse_ingest_settings

CONFIG = {"bootstrap.servers": "b:1", "group.id": "g", "lake.warehouse": "w"}


@pytest.mark.parametrize("topic", ["orders-dead-letter", "orders.dead.letter", "orders_Dead_Letter"])
def test_a_topic_is_refused_whose_table_is_a_dead_letter_table(topic: str) -> None:
    """Its rows would mix with the dead letters of another topic, and a replay would delete them."""
    with pytest.raises(TableNameCollisionError, match=rf"'{topic}'.*lake\.tables"):
        TableNames().check_collisions([topic])
    with pytest.raises(TableNameCollisionError, match=rf"'{topic}'.*lake\.tables"):
        parse_ingest_settings({**CONFIG, "topics": ["orders", topic]})
    renamed = {topic: "lake.letters"}
    TableNames(mapping=renamed).check_collisions([topic])
    parse_ingest_settings({**CONFIG, "topics": [topic], "lake.tables": renamed})


def test_topics_with_one_table_are_refused_before_the_consumer_starts() -> None:
    """A pattern is checked when its topics are known."""
    with pytest.raises(TableNameCollisionError, match=r"'a-b' and 'a\.b'"):
        parse_ingest_settings({**CONFIG, "topics": ["a.b", "a-b"]})
    parse_ingest_settings({**CONFIG, "topics": "^orders[-]dead[-]letter"})


@pytest.mark.parametrize(
    "setting", [{"lake.table": "lake.{topic}_dead_letter"}, {"lake.tables": {"orders": "lake.x_Dead_Letter"}}]
)
def test_a_setting_is_refused_that_names_a_dead_letter_table(setting: dict[str, object]) -> None:
    """The error names the setting."""
    with pytest.raises(SettingError, match=rf"{next(iter(setting))}.*dead_letter"):
        parse_ingest_settings({**CONFIG, "topics": ["orders"], **setting})


def test_a_transform_writes_no_dead_letter_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows would be replaced by the decoder's dead letters."""
    monkeypatch.setattr(projection, "DataFrame", str)  # a frame without Spark

    def split(rows: str) -> dict[str, str]:
        return {"orders": rows, "orders_dead_letter": "mine"}

    shaping = projection.TableProjection("lake.orders", lambda _, __: DecodedFrames("rows", "bad"), split)
    with pytest.raises(SettingError, match=rf"lake\.transform.*{dead_letter_table('lake.orders')}"):
        shaping.project_records(pa.table({}), str)
