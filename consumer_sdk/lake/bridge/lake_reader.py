"""Bridge read: the rows of a topic's table, and the records of the topic that it does not have yet.

Rules:

1. Offsets and rows of the table are those of one version. The ends of the topic are read after it,
   once: the result has each record below them once, whatever is committed meanwhile.
2. A partition without an offset in the table begins where the group would. Those offsets are read
   before the table, for the writer commits to Kafka after the table.
3. A version whose files or records have been deleted meanwhile is replaced by the newest one, at most
   MAX_REPLACED_VERSIONS times.
4. Records are decoded by the writer's projection. Dead letters are in their own table only.
5. Only a topic's own table is read: no other has offsets that say what is missing.
"""

from collections.abc import Mapping
from functools import reduce
from typing import Any, Final, Self

from pyspark.sql import DataFrame

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.errors import SettingError, suggest_name
from trimtab.common.units import format_count
from trimtab.consumer_sdk.errors import LakeUnavailableError, OffsetRegressionError, OffsetsExpiredError
from trimtab.consumer_sdk.lake.bridge.arrow_rows import append_rows
from trimtab.consumer_sdk.lake.bridge.engines import open_table_reader
from trimtab.consumer_sdk.lake.bridge.lake_rows import LakeRows
from trimtab.consumer_sdk.lake.bridge.spark_rows import SparkRows
from trimtab.consumer_sdk.lake.bridge.table_snapshot import TableSnapshot
from trimtab.consumer_sdk.lake.bridge.topic_tail import TopicTail, build_tail_settings
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.decoding.decoded_records import BatchTooLargeError
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.model.interfaces import Frame, Records
from trimtab.consumer_sdk.lake.model.table_names import is_dead_letter_table
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap
from trimtab.consumer_sdk.lake.options.settings import LakeConfig, SessionConfig
from trimtab.consumer_sdk.lake.projection.topic_projections import TopicProjections
from trimtab.consumer_sdk.lake.tables.warehouse import describe_warehouse, list_local_tables
from trimtab.consumer_sdk.lake.writer.ingest import parse_ingest_settings

MAX_REPLACED_VERSIONS: Final = 20  # by one read


def read(
    table: str, config: Mapping[str, Any], *, engine: str | None = None, lake: SparkLake | None = None
) -> LakeRows:
    """Return a table's rows and the records behind them; arguments and errors are those of `LakeReader`."""
    with LakeReader(table, config, engine=engine, lake=lake) as reader:
        return reader.read()


class LakeReader:
    """Reads one table and the end of its topics, until closed; not thread-safe.

    `config` is that of `trimtab ingest`. `engine` is "arrow" or "spark"; None: Arrow where it can read
    the table. With `lake` the tables are read with its Spark session. Joins no group, commits nothing.

    Raises SettingError, MissingExtraError, BrokerUnreachableError, SaslAuthenticationError,
    TlsHandshakeError and the errors of starting Spark.
    """

    def __init__(
        self,
        table: str,
        config: Mapping[str, Any],
        *,
        engine: str | None = None,
        lake: SparkLake | None = None,
    ) -> None:
        settings = parse_ingest_settings(config)
        self._table = table
        self._config = settings.lake
        self._topics = settings.topics
        self._reset = str(settings.consumer_config["auto.offset.reset"])
        _check_topic_table(table, self._config, self._topics)
        self._reader = open_table_reader(table, self._config, engine, lake)
        self._projections = TopicProjections(self._config)  # schemas of JSON need a running Spark
        self._tail = TopicTail(build_tail_settings(config, self._config.group))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the brokers, and end reading in the background."""
        self._tail.close()
        self._reader.close()

    def read(self) -> LakeRows:
        """Return the rows as of now.

        Raises OffsetsExpiredError if records were deleted that the table does not have, SettingError if no
        topic has the table or changes behind it take too much memory, OffsetRegressionError if one was
        created again, CommittedOffsetsLostError, TableSchemaMismatchError, TransformError,
        LakeUnavailableError, BrokerUnreachableError, SchemaRegistryUnavailableError.
        """
        partitions = self._tail.list_partitions(self._topics, self._feeds_table)
        if not partitions:
            _check_table_exists(self._table, self._config.session)
            raise SettingError(
                f"{self._table} is not the table of a topic on the brokers; topics: {', '.join(self._topics)}"
            )
        snapshot, starts = self._read_snapshot(partitions)
        replaced = 0
        while True:
            try:
                return self._read_behind(snapshot, starts)
            except (LakeUnavailableError, OffsetsExpiredError) as error:
                tried = snapshot.version, starts
                snapshot, starts = self._read_snapshot(partitions, newest=True)
                if (snapshot.version, starts) == tried:  # rule 3
                    raise
                replaced += 1
                if replaced == MAX_REPLACED_VERSIONS:
                    raise _explain_unrest(self._table, error) from error

    def _feeds_table(self, topic: str) -> bool:
        return self._config.table_names.table_for(topic) == self._table

    def _read_snapshot(
        self, partitions: list[TopicPartition], *, newest: bool = False
    ) -> tuple[TableSnapshot, dict[TopicPartition, int]]:
        """Return a version of the table, and where to read each partition from."""
        group = self._config.group
        snapshot = self._reader.read_snapshot(group, partitions, newest=newest)
        starts: dict[TopicPartition, int] = {}
        if unknown := [p for p in partitions if snapshot.offsets.next_offset(group, p) is None]:
            starts = self._tail.read_group_starts(unknown, self._reset)  # rule 2
            snapshot = self._reader.read_snapshot(group, partitions, newest=newest)
        known = {p: snapshot.offsets.next_offset(group, p) for p in partitions}
        return snapshot, starts | {p: offset for p, offset in known.items() if offset is not None}

    def _read_behind(self, snapshot: TableSnapshot, starts: Mapping[TopicPartition, int]) -> LakeRows:
        ends = self._tail.read_ends(starts)
        ranges = {p: _check_range(self._table, p, OffsetGap(first, ends[p])) for p, first in starts.items()}
        records = self._tail.read_records(ranges)
        rows = None if snapshot.scan is None else snapshot.scan()
        return LakeRows(self._table, snapshot.version, ranges, self._join_records(rows, records))

    def _join_records(self, rows: Frame | None, records: Records) -> Records | SparkRows:
        behind = self._decode(records) if records.num_rows else None
        if rows is None and behind is None:
            behind = records.slice(0, 0)
        return self._reader.join_rows(rows, behind)

    def _decode(self, records: Records) -> Frame | KeyedChanges | None:
        topic = str(records.column("topic")[0])  # topics of one table have one schema
        projection = self._projections.projection_for(self._table, topic)
        parts, decoded = [records], list[Frame]()
        while parts:
            part = parts.pop()
            try:
                frame = projection.project_records(part, self._reader.to_frame).topic_table
            except BatchTooLargeError as error:
                if self._config.changes is not None:  # of one key only the last change of all parts counts
                    raise _explain_size(self._table, records.num_rows) from error
                parts += [part[error.records :], part[: error.records]]
            else:
                decoded += [] if frame is None else [frame]
        return reduce(_append_frame, decoded) if decoded else None


def _append_frame(rows: Frame, more: Frame) -> Frame:
    if isinstance(rows, DataFrame):
        return rows.unionByName(more, allowMissingColumns=True)
    return append_rows(rows, more)


def _explain_size(table: str, count: int) -> SettingError:
    return SettingError(
        f"table {table}: the columns of the {format_count(count, 'record')} behind it take too much memory "
        "to apply as one batch: read it after the group has written them, and let it flush more often "
        "(batch.max.age)"
    )


def _explain_unrest(table: str, error: Exception) -> LakeUnavailableError:
    return LakeUnavailableError(
        f"table {table}: {MAX_REPLACED_VERSIONS} versions were replaced, each while it was read, and their "
        f"files or records deleted at once ({error}). Keep versions longer (tables expire --older-than) and "
        "records longer than a batch (retention.ms), or flush less often"
    )


def _check_topic_table(table: str, config: LakeConfig, topics: tuple[str, ...]) -> None:
    """Raise SettingError for a table that is not a topic's own (rule 5)."""
    if is_dead_letter_table(table):
        raise SettingError(f"{table} has dead letters: list them with trimtab dead-letter list")
    has_pattern = any(topic.startswith("^") for topic in topics)
    own = sorted({config.table_names.table_for(t) for t in topics if not t.startswith("^")})
    if table not in own and not has_pattern:
        _check_table_exists(table, config.session)
        raise SettingError(
            f"{table} is not the table of a topic in topics: {', '.join(own)}; the tables of a transform do "
            "not tell which records they lack: read those with Spark"
        )


def _check_table_exists(table: str, session: SessionConfig) -> None:
    """Raise SettingError if it is known without Spark that there is no such table."""
    tables = list_local_tables(session)
    if tables is not None and table not in tables:
        hint = suggest_name(table, tables)
        listed = ", ".join(name for name in tables if not is_dead_letter_table(name)) or "none"
        raise SettingError(
            f"there is no table {table!r} in {describe_warehouse(session)}{hint}; there are: {listed}"
        )


def _check_range(table: str, partition: TopicPartition, offsets: OffsetGap) -> OffsetGap:
    if offsets.next < offsets.first:
        raise OffsetRegressionError(
            f"{partition}: the log ends at offset {offsets.next}, and table {table} has the records below "
            f"{offsets.first}: the topic was deleted and created again. Give it another table (lake.tables)"
        )
    return offsets
