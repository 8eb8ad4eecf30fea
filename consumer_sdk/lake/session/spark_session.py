"""Spark session of the lake writer: one classic session per process, for one table format."""

import atexit
import logging
import os
import re
import shlex
import signal
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import current_thread, main_thread
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security.secrets import mask_passwords
from trimtab.consumer_sdk.errors import SparkSessionError, StorageClientMissingError
from trimtab.consumer_sdk.java.java_runtime import require_java
from trimtab.consumer_sdk.lake.formats import table_format
from trimtab.consumer_sdk.lake.formats.object_storage import list_client_classes
from trimtab.consumer_sdk.lake.options.settings import SessionConfig
from trimtab.consumer_sdk.lake.options.storage_config import find_storage
from trimtab.consumer_sdk.lake.spark import jvm_errors
from trimtab.consumer_sdk.lake.spark.gateway import java_packages, private_attribute, py4j_gateway
from trimtab.consumer_sdk.lake.spark.jvm_output import JvmOutput

JAVA_OPTIONS_SETTING: Final = "spark.driver.extraJavaOptions"
_JVM_OPTION_SETTINGS: Final = frozenset({JAVA_OPTIONS_SETTING, "spark.driver.defaultJavaOptions"})
SUBMIT_ARGS_VARIABLE: Final = "PYSPARK_SUBMIT_ARGS"  # arguments of spark-submit, which starts the JVM
_SESSION_DEFAULTS: Final = {
    "spark.master": "local[*]",
    "spark.app.name": "trimtab",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "1",  # a flush is one small job
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.adaptive.enabled": "false",  # re-planning costs more than such a job
}
# They log an exception that the writer raises and logs in a line, at each trial of a halted table.
_JOB_LOGGERS: Final = (
    "executor.Executor",
    "scheduler.TaskSetManager",
    "sql.delta.files.DeltaFileFormatWriter",
    "sql.execution.datasources.v2",
    "util.Utils",
)
_LOG4J_CONFIG: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m %ex{1}%n
""" + "".join(
    f"logger.job{n}.name = org.apache.spark.{name}\nlogger.job{n}.level = fatal\n"
    for n, name in enumerate(_JOB_LOGGERS)
)
_LOCAL_DRIVER_SETTINGS: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


def build_session_settings(config: SessionConfig, jars: Sequence[Path]) -> dict[str, str]:
    """Return all Spark settings of a session; `spark.*` settings of the user win."""
    local = config.spark.get("spark.master", "local[*]").startswith("local")
    jars_of_user = [path for path in config.spark.get("spark.jars", "").split(",") if path]
    return {
        **_SESSION_DEFAULTS,
        **(_LOCAL_DRIVER_SETTINGS if local else {}),
        **table_format.resolve_requirements(config).settings,
        **config.spark,
        "spark.jars": ",".join([*jars_of_user, *map(str, jars)]),
    }


def start_session(config: SessionConfig, progress: Callable[[str], None] | None = None) -> SparkSession:
    """Start a session and its callback server.

    Raises JavaNotFoundError, UnsupportedJavaError, SparkSessionError if the JVM does not start or a
    running session lacks the table format, StorageClientMissingError if it cannot reach the storage of the
    warehouse, SettingError if the warehouse folder cannot be created or
    options of the JVM cannot be read.
    """
    require_java()
    _create_warehouse_folder(config)
    for noisy in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)  # they log exceptions that the writer handles
    requirements = table_format.resolve_requirements(config)
    jars = requirements.fetch_jars(progress)
    settings = {JAVA_OPTIONS_SETTING: _build_java_options()} | build_session_settings(config, jars)
    try:
        spark = _create_session(settings)
        _check_probe_class(spark, requirements)
        _check_storage_client(spark, config)
        private_attribute(java_gateway, "ensure_callback_server_started")(py4j_gateway(spark))
    except (PySparkException, Py4JError, RuntimeError, OSError) as error:
        first_line = mask_passwords(str(error).splitlines()[0])
        raise SparkSessionError(
            f"the Spark session did not start: {first_line}; see Java's output "
            f"above (spark.master={settings['spark.master']})"
        ) from jvm_errors.MaskedError(error)
    return spark


def _create_session(settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.config(map={**settings})
    if private_attribute(SparkContext, "_gateway") is not None:
        return builder.getOrCreate()
    # pyspark passes settings as arguments of spark-submit, which any user can list
    with _pass_settings_by_file(settings), _hold_startup_output() as write_fd:
        with _defer_signals():
            _launch_jvm(write_fd)
        _create_context(settings)
        return builder.getOrCreate()


@contextmanager
def _defer_signals() -> Generator[None]:
    """Handle SIGINT and SIGTERM after the block."""
    # an interrupted launch leaves a JVM that does not end: PySpark deletes the folder that it writes to
    received: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    own = {n: handler for n, handler in handlers.items() if callable(handler)}
    if current_thread() is not main_thread():
        own = {}
    for number in own:
        signal.signal(number, lambda number, _frame: received.append(number))
    try:
        yield
    finally:
        for number, handler in own.items():
            signal.signal(number, handler)
    for first in received[:1]:
        signal.raise_signal(first)


def _create_context(settings: Mapping[str, str]) -> None:
    # PySpark replaces the handler of SIGINT by one that makes the running call to the JVM fail; an
    # application that handles the signal keeps its own
    handler = signal.getsignal(signal.SIGINT)
    SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
    if handler is not signal.default_int_handler and current_thread() is main_thread():
        signal.signal(signal.SIGINT, handler)


def _launch_jvm(output_fd: int) -> None:
    # as SparkContext starts it, which leaves both outputs with this process: a JVM writes its warnings to
    # standard output, where a command's own output is, JSON for example
    streams = {"stdout": output_fd, "stderr": output_fd}
    gateway = private_attribute(java_gateway, "launch_gateway")(None, streams)
    private_attribute(SparkContext, "_ensure_initialized")(gateway=gateway)


@contextmanager
def _hold_startup_output() -> Generator[int]:
    """Yield a descriptor for the JVM's output; print its output if the block fails."""
    # on success the output is notes on incubator modules and log4j, which need no action
    output = JvmOutput()
    try:
        yield output.write_fd
    except BaseException as error:
        output.close_write_end()
        if isinstance(error, Exception):  # an interrupt is no failure
            output.print_held()
        raise
    output.close_write_end()
    output.pass_through()


@contextmanager
def _pass_settings_by_file(settings: Mapping[str, str]) -> Generator[None]:
    before = os.environ.get(SUBMIT_ARGS_VARIABLE)
    with ExitStack() as files:
        by_file = dict(settings)
        for name in sorted(_JVM_OPTION_SETTINGS & settings.keys()):  # java reads them from a file, too
            options = _render_argument_file(name, settings[name])
            by_file[name] = f"@{files.enter_context(_write_private_file(options))}"
        lines = (f"{_escape_property(n)}={_escape_property(v)}\n" for n, v in by_file.items())
        path = files.enter_context(_write_private_file("".join(lines)))
        # spark-submit would read the file instead of the user's spark-defaults.conf
        arguments = f"--properties-file {shlex.quote(path)} --load-spark-defaults"
        os.environ[SUBMIT_ARGS_VARIABLE] = f"{arguments} {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            if before is None:
                del os.environ[SUBMIT_ARGS_VARIABLE]
            else:
                os.environ[SUBMIT_ARGS_VARIABLE] = before


@contextmanager
def _write_private_file(text: str) -> Generator[str]:
    # readable by this user only, and deleted once the JVM has read it
    with tempfile.NamedTemporaryFile("w", prefix="trimtab-", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        yield file.name


def _render_argument_file(name: str, options: str) -> str:
    """Return JVM options in the format of `java @file`. Raises SettingError."""
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"})
    try:
        return "\n".join(f'"{option.translate(escapes)}"' for option in shlex.split(options))
    except ValueError as error:
        raise SettingError(f"{name}: {error}; write options as in a shell") from error


def _escape_property(text: str) -> str:
    # blanks, "=", ":" and others have a meaning in a key or at the start of a value
    return re.sub(r"[^A-Za-z0-9._/-]", lambda found: _escape_character(found[0]), text)


def _escape_character(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def _build_java_options() -> str:
    # one thread for garbage collection: workers share the machine's cores; errors only in the log
    handle, path = tempfile.mkstemp(prefix="trimtab-", suffix="-log4j2.properties")
    with os.fdopen(handle, "w") as file:
        file.write(_LOG4J_CONFIG)
    atexit.register(Path(path).unlink, missing_ok=True)
    return f"-XX:+UseSerialGC -Dlog4j2.configurationFile={Path(path).as_uri()}"


def _create_warehouse_folder(config: SessionConfig) -> None:
    folder = None if config.catalog else table_format.local_folder(str(config.warehouse))
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"lake.warehouse: the folder {folder} cannot be created: {error}") from error


def _check_probe_class(spark: SparkSession, requirements: table_format.SessionRequirements) -> None:
    """Raise SparkSessionError if a running session lacks the classes of the format."""
    if not _has_class(spark, requirements.probe_class):
        raise SparkSessionError(
            f"the Spark session of this process does not have {requirements.probe_class}: stop it "
            "before the sink starts, or start it with "
            f"spark.jars.packages={','.join(requirements.coordinates)} and with "
            f"{', '.join(requirements.settings)}"  # names only: no list knows which values are secret
        )


def _check_storage_client(spark: SparkSession, config: SessionConfig) -> None:
    """Raise StorageClientMissingError if the session cannot reach the storage of the warehouse."""
    location = config.warehouse or config.catalog.get("warehouse", "")
    storage = config.storage.name or find_storage(location)
    if not storage:
        return
    classes = list_client_classes(config.format, storage)
    if not any(_has_class(spark, name) for name in classes):
        advice = (
            "stop the session of this process first" if config.storage.name else "its client is downloaded"
        )
        raise StorageClientMissingError(
            f"the tables are on {storage}, and the Spark session has none of {', '.join(classes)}: "
            f"set lake.storage={storage}; {advice}"
        )


def _has_class(spark: SparkSession, name: str) -> bool:
    try:
        java_packages(spark).py4j.reflection.ReflectionUtil.classForName(name)
    except Py4JJavaError:
        return False
    return True
