"""`trimtab tables connect`: what to paste into another engine to read the lake's tables."""

from typing import Final

import typer

from trimtab.cli.lake_session import load_lake_settings
from trimtab.cli.tables.options import ConnectOptions, Engine
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.formats.table_format import DELTA_JAR, ICEBERG_JAR, SQLITE_JAR, local_folder
from trimtab.consumer_sdk.lake.options.settings import DELTA_FORMAT, SessionConfig, parse_session_config
from trimtab.consumer_sdk.lake.tables.inventory import check_lake_exists
from trimtab.consumer_sdk.lake.tables.warehouse import CATALOG_FILE, list_local_tables

_ICEBERG_LINES: Final = {
    Engine.SPARK: """\
# spark-defaults.conf of Spark 4.1, or each line by --conf KEY=VALUE
spark.jars.packages {iceberg_jar},{sqlite_jar}
spark.sql.catalog.{catalog} org.apache.iceberg.spark.SparkCatalog
spark.sql.catalog.{catalog}.type jdbc
spark.sql.catalog.{catalog}.uri jdbc:sqlite:{catalog_file}
spark.sql.catalog.{catalog}.jdbc.schema-version V1
spark.sql.catalog.{catalog}.warehouse {warehouse_uri}
# SELECT * FROM {catalog}.{table}""",
    Engine.PYICEBERG: """\
# pip install 'pyiceberg[pyarrow,sql-sqlite]'
from pyiceberg.catalog.sql import SqlCatalog
catalog = SqlCatalog({catalog!r}, uri={catalog_url!r}, init_catalog_tables="false")
rows = catalog.load_table({table!r}).scan().to_arrow()""",
    Engine.DUCKDB: """\
INSTALL iceberg; LOAD iceberg; INSTALL sqlite; LOAD sqlite;
ATTACH {sql_catalog_file} AS catalog (TYPE sqlite, READ_ONLY);
SET VARIABLE location = (SELECT metadata_location FROM catalog.iceberg_tables
  WHERE catalog_name = '{catalog}' AND table_namespace || '.' || table_name = '{table}');
SELECT * FROM iceberg_scan(getvariable('location'));""",
    Engine.TRINO: """\
# etc/catalog/{catalog}.properties, on nodes that see the folder; {sqlite_jar} in plugin/iceberg
connector.name=iceberg
iceberg.catalog.type=jdbc
iceberg.jdbc-catalog.catalog-name={catalog}
iceberg.jdbc-catalog.driver-class=org.sqlite.JDBC
iceberg.jdbc-catalog.connection-url=jdbc:sqlite:{catalog_file}
iceberg.jdbc-catalog.schema-version=V1
iceberg.jdbc-catalog.default-warehouse-dir={warehouse_uri}
fs.hadoop.enabled=true
# SELECT * FROM {catalog}.{table}""",
}
_DELTA_LINES: Final = {
    Engine.SPARK: """\
# spark-defaults.conf of Spark 4.1, or each line by --conf KEY=VALUE
spark.jars.packages {delta_jar}
spark.sql.extensions io.delta.sql.DeltaSparkSessionExtension
spark.sql.catalog.spark_catalog org.apache.spark.sql.delta.catalog.DeltaCatalog
# SELECT * FROM delta.`{table_folder}`""",
    Engine.DUCKDB: """\
INSTALL delta; LOAD delta;
SELECT * FROM delta_scan({sql_table_folder});""",
    Engine.TRINO: """\
# etc/catalog/trimtab.properties, on nodes that see the folder; each table is registered once
connector.name=delta_lake
hive.metastore=file
hive.metastore.catalog.dir=file:///var/trino/metastore
delta.register-table-procedure.enabled=true
fs.hadoop.enabled=true
# CREATE SCHEMA trimtab.{namespace};
# CALL trimtab.system.register_table('{namespace}', '{name}', '{table_uri}');
# SELECT * FROM trimtab.{table}""",
}


def connect(options: ConnectOptions) -> None:
    """Print the lines for an engine. Raises SettingError."""
    config = parse_session_config(load_lake_settings(options.config, options.warehouse))
    if config.catalog or local_folder(str(config.warehouse)) is None:
        raise SettingError(
            "connect prints how to reach the tables of a local folder; engines reach those of lake.catalog.* "
            "and of object stores by the settings that name them"
        )
    check_lake_exists(config)
    lines = _DELTA_LINES if config.format == DELTA_FORMAT else _ICEBERG_LINES
    if options.engine not in lines:
        raise SettingError(f"{options.engine}: the tables are Delta's; write {', '.join(lines)}")
    table = options.table or next(iter(list_local_tables(config) or ()), "namespace.table")
    typer.echo(lines[options.engine].format(**_describe_places(config, table)))


def _describe_places(config: SessionConfig, table: str) -> dict[str, str]:
    folder = local_folder(str(config.warehouse))
    assert folder is not None
    namespace, _, name = table.rpartition(".")
    catalog_file, table_folder = folder.absolute() / CATALOG_FILE, folder.absolute() / namespace / name
    return {
        "table": table,
        "namespace": namespace,
        "name": name,
        "catalog": config.catalog_name,
        "catalog_file": str(catalog_file),
        "catalog_url": f"sqlite:///{catalog_file}",
        "sql_catalog_file": _quote_sql(str(catalog_file)),
        "warehouse_uri": folder.absolute().as_uri(),
        "table_folder": str(table_folder),
        "table_uri": table_folder.as_uri(),
        "sql_table_folder": _quote_sql(str(table_folder)),
        "iceberg_jar": ICEBERG_JAR,
        "sqlite_jar": SQLITE_JAR,
        "delta_jar": DELTA_JAR,
    }


def _quote_sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
