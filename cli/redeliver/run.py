"""`trimtab redeliver`: the redelivery tracker of a kmq queue."""

import os
from threading import Event
from typing import Any

from trimtab.cli.logs import log_to_stderr
from trimtab.cli.redeliver.options import RedeliverOptions
from trimtab.cli.setting_pairs import parse_pairs
from trimtab.cli.signals import stop_on_signals
from trimtab.common.errors import SettingError
from trimtab.common.kafka_security.secrets import mask_secrets_in_errors, resolve_secrets
from trimtab.common.settings.config_file import read_config_file
from trimtab.consumer_sdk.queues.kmq.redelivery_tracker import RedeliveryTracker
from trimtab.consumer_sdk.queues.settings import parse_queue_settings


def redeliver(options: RedeliverOptions) -> None:
    """Run a tracker until SIGTERM or SIGINT. Raises SettingError."""
    config: dict[str, Any] = read_config_file(options.config) if options.config else {}
    config |= parse_pairs("--set", options.settings)
    flags = {"bootstrap.servers": options.bootstrap, "group.id": options.group}
    config |= {name: value for name, value in flags.items() if value is not None}
    if not config.get("group.id"):
        raise SettingError("--group is missing: the group of the queue's workers")
    log_to_stderr()
    stop = Event()
    stop_on_signals(stop)
    with mask_secrets_in_errors(config, os.environ):
        settings = parse_queue_settings(options.topic, resolve_secrets(config, os.environ))
    RedeliveryTracker(settings).run(stop)
