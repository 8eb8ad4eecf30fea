"""`trimtab tables read`: print the rows of a table and the records behind them."""

import csv
import json
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from trimtab.cli.lake_session import load_lake_settings
from trimtab.cli.output_formats import print_table
from trimtab.cli.tables.options import ReadOptions, RowsFormat
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.bridge import lake_reader
from trimtab.consumer_sdk.lake.bridge.arrow_tables import import_library
from trimtab.consumer_sdk.lake.model.interfaces import Records


def read(options: ReadOptions) -> None:
    """Read a table and print its rows. Raises SettingError, MissingExtraError."""
    config = load_lake_settings(options.config, None)
    if options.sql is not None:
        import_library("duckdb")  # before the table is read, which may start Spark
    rows = lake_reader.read(options.table, config, engine=options.engine).to_arrow()
    if options.sql is not None:
        rows = query_rows(rows, options.table, options.sql)
    _print_rows(rows.slice(0, options.limit), options.output)


def query_rows(rows: Records, table: str, sql: str) -> Records:
    """Return the result of a query of DuckDB. Raises SettingError, MissingExtraError."""
    duckdb = import_library("duckdb")
    with duckdb.connect() as connection:
        try:
            return connection.register(table.rpartition(".")[2], rows).sql(sql).to_arrow_table()
        except (duckdb.Error, AttributeError) as error:  # a statement without rows has no relation
            raise SettingError(f"--sql: {error}") from error


def _print_rows(rows: Records, output: RowsFormat) -> None:
    if output is RowsFormat.ARROW:
        with pa.ipc.new_stream(sys.stdout.buffer, rows.schema) as stream:
            stream.write_table(rows)
    elif output is RowsFormat.JSON:
        for row in iterate_rows(rows):
            sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
    elif output is RowsFormat.CSV:
        writer = csv.writer(sys.stdout)
        writer.writerow(rows.column_names)
        writer.writerows([_to_cell(value) for value in row.values()] for row in iterate_rows(rows))
    else:
        print_table(rows.column_names, ([_to_cell(v) for v in row.values()] for row in iterate_rows(rows)))


def iterate_rows(rows: Records) -> Iterator[dict[str, Any]]:
    """Yield rows as values of JSON: binary as UTF-8 with other bytes escaped, times and decimals as text."""
    for batch in _times_to_text(rows).to_batches():
        for row in batch.to_pylist(maps_as_pydicts="strict"):
            yield {name: _to_json_value(value) for name, value in row.items()}


def _times_to_text(rows: Records) -> Records:
    # Python has no times after the year 9999
    for place, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(place, field.name, rows.column(place).cast(pa.string()))
    return rows


def _to_json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {str(key): _to_json_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_to_json_value(item) for item in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _to_cell(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
