"""The Spark session of the sink: one classic session in this process, for one table format.

`local[*]` unless `spark.master` names a cluster; any `spark.*` setting wins over the defaults here
and over what the format asks for (`formats`).
"""

import atexit
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext, java_gateway
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security.secrets import is_secret
from trimtab.consumer_sdk.errors import SessionFailed
from trimtab.consumer_sdk.java.java_runtime import require_java
from trimtab.consumer_sdk.lake.formats.table_format import Needs, local_folder, needs
from trimtab.consumer_sdk.lake.settings import SessionConfig

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
SUBMIT: Final = "PYSPARK_SUBMIT_ARGS"
"""Variable with arguments of the program that starts the JVM."""

_DEFAULTS: Final = {
    "spark.master": "local[*]",
    "spark.app.name": "trimtab",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "1",  # one flush is one small job
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.storeAssignmentPolicy": "STRICT",  # a value is never rounded to fit its column
    "spark.sql.adaptive.enabled": "false",  # re-planning costs more than such a job
}
_QUIET: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""
_LOCAL: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


def settings(config: SessionConfig, jars: Sequence[Path]) -> dict[str, str]:
    """Return every Spark setting of a session; pure, but for the folder names in it."""
    local = config.spark.get("spark.master", "local[*]").startswith("local")
    given = [path for path in config.spark.get("spark.jars", "").split(",") if path]
    return {
        **_DEFAULTS,
        **(_LOCAL if local else {}),
        **needs(config).settings,
        **config.spark,
        "spark.jars": ",".join([*given, *map(str, jars)]),
    }


def start(config: SessionConfig, progress: Callable[[str], None] | None = None) -> SparkSession:
    """Return a session, with its callback server running.

    Raises NoJava and WrongJava, SessionFailed when the JVM does not start or is of another
    application without the table format, SettingError for a warehouse folder that cannot be made.
    """
    require_java()
    _make_folder(config)
    for noisy in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)  # they print what we catch
    needed = needs(config)
    jars = needed.fetch(progress)
    wanted = {JAVA_OPTIONS: _java_options()} | settings(config, jars)
    try:
        spark = _session(wanted)
        _check(spark, needed)
        _hidden(java_gateway, "ensure_callback_server_started")(gateway(spark))
    except (PySparkException, Py4JError, RuntimeError, OSError) as error:
        raise SessionFailed(
            f"the Spark session did not start: {str(error).splitlines()[0]}; what Java "
            "printed above says why "
            f"(spark.master={wanted['spark.master']})"
        ) from error
    return spark


def _session(wanted: Mapping[str, str]) -> SparkSession:
    """Return a session with these settings; secrets are not in the command line of its JVM."""
    running = _hidden(SparkContext, "_gateway") is not None
    secret = {} if running else {n: v for n, v in wanted.items() if is_secret(n)}
    builder = SparkSession.builder
    for name, value in wanted.items():
        if name not in secret:
            builder = builder.config(name, value)
    with _told_by_file(secret):
        return builder.getOrCreate()


@contextmanager
def _told_by_file(secret: Mapping[str, str]) -> Generator[None]:
    """Have a JVM that starts read these settings from a file that only we may read."""
    if not secret:
        yield
        return
    before = os.environ.get(SUBMIT)
    with tempfile.NamedTemporaryFile("w", prefix="trimtab-", suffix=".properties") as file:
        file.writelines(f"{name}={_escaped(value)}\n" for name, value in secret.items())
        file.flush()
        told = f"--properties-file {file.name} --load-spark-defaults"
        os.environ[SUBMIT] = f"{told} {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            if before is None:
                del os.environ[SUBMIT]
            else:
                os.environ[SUBMIT] = before


def _escaped(value: str) -> str:
    """Return a value as a file of Java properties has it."""
    return str(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def gateway(spark: SparkSession) -> Any:
    """Return py4j's gateway to the session's JVM."""
    return _hidden(spark.sparkContext, "_gateway")


def session_object(spark: SparkSession) -> Any:
    """Return the session as an object of the JVM."""
    return _hidden(spark, "_jsparkSession")


def frame_object(frame: DataFrame) -> Any:
    """Return a frame as an object of the JVM."""
    return _hidden(frame, "_jdf")


def _hidden(owner: object, name: str) -> Any:
    """Return what pyspark has no public name for."""
    return getattr(owner, name)


def jvm(spark: SparkSession) -> Any:
    """Return the root of the JVM's packages."""
    return gateway(spark).jvm


def _java_options() -> str:
    """Return options for the JVM: one small heap with few threads, and errors only on its log."""
    handle, path = tempfile.mkstemp(prefix="trimtab-", suffix="-log4j2.properties")
    with os.fdopen(handle, "w") as file:
        file.write(_QUIET)
    atexit.register(Path(path).unlink, missing_ok=True)
    return f"-XX:+UseSerialGC -Dlog4j2.configurationFile={Path(path).as_uri()}"


def _make_folder(config: SessionConfig) -> None:
    folder = None if config.catalog else local_folder(str(config.warehouse))
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(
            f"lake.warehouse: the folder {folder} cannot be made: {error}"
        ) from error


def _check(spark: SparkSession, needed: Needs) -> None:
    """Raise SessionFailed if a session that was already there cannot see the format's classes."""
    try:
        jvm(spark).py4j.reflection.ReflectionUtil.classForName(needed.probe)
    except Py4JError as error:
        settings = " ".join(
            f"{name}={'…' if is_secret(name) else value}" for name, value in needed.settings.items()
        )
        raise SessionFailed(
            f"the Spark session of this process does not have {needed.probe}: stop it before the "
            f"sink starts, or start it with spark.jars.packages={','.join(needed.coordinates)} "
            f"and with {settings}"
        ) from error


def quiet_exit(spark: SparkSession) -> None:
    """Stop a session; a JVM that is already gone is no error."""
    try:
        spark.stop()
    except (Py4JError, OSError) as error:
        sys.stderr.write(f"the Spark session did not stop cleanly: {error}\n")


def described(config: Mapping[str, str]) -> str:
    """Return the catalog's settings for a log line, without what may be a secret."""
    plain = {k: v for k, v in config.items() if k in ("type", "uri", "warehouse", "catalog-impl")}
    return ", ".join(f"{k}={v}" for k, v in sorted(plain.items()))
