"""`trimtab ingest`: writes topics into lake tables until it is stopped."""

import logging
import os
from threading import Event

from trimtab.cli.ingest.options import IngestCommandOptions
from trimtab.cli.logs import log_to_stderr
from trimtab.cli.setting_pairs import parse_pairs
from trimtab.cli.signals import exit_on_signals, stop_on_signals
from trimtab.common.kafka_security.secrets import mask_secrets_in_errors, resolve_secrets
from trimtab.common.settings.config_file import read_config_file
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.session.factory import open_lake
from trimtab.consumer_sdk.lake.tables.warehouse import describe_warehouse
from trimtab.consumer_sdk.lake.writer import ingest as lake_ingest

log = logging.getLogger("trimtab.ingest")


def ingest(options: IngestCommandOptions) -> None:
    """Run one consumer until SIGTERM or SIGINT. Raises SettingError."""
    given = read_config_file(options.config)
    given |= parse_pairs("--set", options.settings, "batch.max.age=5 s")
    if options.instance is not None:
        given["trimtab.instance"] = options.instance
    if options.metrics_port is not None:
        given[lake_ingest.METRICS_PORT_SETTING] = options.metrics_port
    with mask_secrets_in_errors(given, os.environ):
        settings = lake_ingest.parse_ingest_settings(resolve_secrets(given, os.environ))
    log_to_stderr()
    # before Spark starts, which would create a mistyped folder
    log.info("writing tables to %s", describe_warehouse(settings.lake.session))
    lake = _start_lake(settings)
    stop = Event()
    stop_on_signals(stop)
    try:
        lake_ingest.run_ingest(settings, lake, stop)
    finally:
        lake.close()
    log.info("stopped")


def _start_lake(settings: lake_ingest.IngestSettings) -> SparkLake:
    """Return the lake; SIGTERM and SIGINT exit with 0, since nothing has been read."""
    try:
        with exit_on_signals():
            lake_ingest.check_broker(settings)  # Spark takes longer to start
            log.info("starting Spark")
            return open_lake(settings.lake.session, warm_up=True)
    except SystemExit:
        log.info("stopped before joining group %s; nothing was read", settings.lake.group)
        raise
