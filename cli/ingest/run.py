"""`trimtab ingest`: topics into lake tables, until it is told to stop."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security.secrets import mask_secrets_in_errors, resolve_secrets
from trimtab.consumer_sdk.errors import MissingExtraError

if TYPE_CHECKING:
    from threading import Event

SIGNAL_WAIT_S = 3600.0


def ingest(
    *,
    config: Annotated[
        Path, typer.Option("--config", "-c", help="A flat YAML mapping of settings.")
    ],
    instance: Annotated[
        str | None, typer.Option(help="This worker's name; it survives restarts.")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Serve /metrics (Prometheus) here; 0: a free port."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="name=value; wins over the file."),
    ] = None,
) -> None:
    """Write the records of Kafka topics into lake tables, each exactly once.

    SIGTERM or SIGINT: flush, leave the group, exit with 0. For example:

        trimtab ingest --config ingest.yaml

        trimtab ingest --config ingest.yaml --instance worker-3 --set "batch.max.age=5 s"

        trimtab ingest --config ingest.yaml --metrics-port 9464
    """
    from threading import Event  # noqa: PLC0415 - keeps --help fast

    _require_spark()
    from trimtab.common.config_file import read_config_file  # noqa: PLC0415 - as above
    from trimtab.consumer_sdk.lake import ingest as work  # noqa: PLC0415 - pyspark is slow to load
    from trimtab.consumer_sdk.lake.writer.writer import open_lake  # noqa: PLC0415 - as above

    whole = read_config_file(config) | parse_set_options(settings or [])
    if instance is not None:
        whole["trimtab.instance"] = instance
    if metrics_port is not None:
        whole[work.METRICS_PORT_SETTING] = metrics_port
    with mask_secrets_in_errors(whole, os.environ):
        checked = work.parse_ingest_settings(resolve_secrets(whole, os.environ))
    log_to_stderr()
    stop = Event()
    stop_on_signals(stop)
    lake = open_lake(checked.lake.session, warm_up=True)
    stop_on_signals(stop)  # again: Spark has put a handler of its own there
    try:
        work.run_ingest(checked, lake, stop)
    finally:
        lake.close()


def stop_on_signals(stop: "Event") -> None:
    """Let SIGTERM and SIGINT set the event.

    A thread of its own sets it: a handler that did so could wait for ever for the event's lock,
    which the code that it interrupts may hold.
    """
    from threading import Thread  # noqa: PLC0415 - keeps --help fast

    from trimtab.cli.signals import install_signal_waiter  # noqa: PLC0415 - as above

    wait = install_signal_waiter()

    def watch() -> None:
        while not wait(SIGNAL_WAIT_S):
            pass
        stop.set()

    Thread(target=watch, name="trimtab-signals", daemon=True).start()


def parse_set_options(pairs: list[str]) -> dict[str, Any]:
    """Return settings of the command line as YAML, references and all. Raises SettingError."""
    import yaml  # noqa: PLC0415 - keeps --help fast

    from trimtab.common.kafka_security.secrets import reject_secret_argument  # noqa: PLC0415 - as above

    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise SettingError('--set needs name=value, like "batch.max.age=5 s"')
        reject_secret_argument("--set", name.strip(), value)
        try:
            found[name.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise SettingError(f"--set {name.strip()}: the value is not YAML") from None
    return found


def _require_spark() -> None:
    from importlib.util import find_spec  # noqa: PLC0415 - only this command asks

    if find_spec("pyspark") is None:
        raise MissingExtraError("pyspark", "lake")


def log_to_stderr() -> None:
    """Log to standard error: our own words from INFO on, others' from WARNING on."""
    import logging  # noqa: PLC0415 - keeps --help fast

    form = "%(asctime)s %(levelname).1s %(name)s: %(message)s"
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(lambda record: record.module != "java_gateway")  # we tell it in one line
    logging.basicConfig(handlers=[handler], level=logging.WARNING, format=form, datefmt="%H:%M:%S")
    logging.getLogger("trimtab").setLevel(logging.INFO)
    # kafka-python tells of a missing topic at each look, as an error; our own word comes once
    logging.getLogger("kafka.cluster").setLevel(logging.CRITICAL)
