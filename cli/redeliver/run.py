"""`trimtab redeliver`: the redelivery tracker of a kmq queue."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security.secrets import mask_secrets_in_errors, resolve_secrets


def redeliver(
    *,
    topic: Annotated[str, typer.Option(help="The queue's topic.")],
    bootstrap: Annotated[str | None, typer.Option("--bootstrap", "-b", help="Brokers.")] = None,
    group: Annotated[str | None, typer.Option(help="The group of the queue's workers.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="A flat YAML mapping of settings.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="name=value; wins over the file.")
    ] = None,
) -> None:
    """Redeliver messages of a kmq queue that were not settled before their deadline.

    Use the workers' settings. Several trackers share the partitions and take over from each other.
    SIGTERM or SIGINT: commit, leave the group, exit with 0. For example:

        trimtab redeliver --bootstrap localhost:9092 --topic orders --group billing

        trimtab redeliver --config worker.yaml --topic orders --set trimtab.queue.max.deliveries=3
    """
    from threading import Event  # noqa: PLC0415 - keeps --help fast

    from trimtab.cli.logs import log_to_stderr  # noqa: PLC0415 - as above
    from trimtab.cli.setting_pairs import parse_pairs  # noqa: PLC0415 - as above
    from trimtab.cli.signals import stop_on_signals  # noqa: PLC0415 - as above
    from trimtab.common.config_file import read_config_file  # noqa: PLC0415 - as above
    from trimtab.consumer_sdk.queues.kmq.redelivery_tracker import RedeliveryTracker  # noqa: PLC0415 - as above
    from trimtab.consumer_sdk.queues.settings import parse_queue_settings as checked  # noqa: PLC0415 - as above

    whole: dict[str, Any] = {**(read_config_file(config) if config else {}), **parse_pairs("--set", settings)}
    whole |= {
        name: value
        for name, value in {"bootstrap.servers": bootstrap, "group.id": group}.items()
        if value is not None
    }
    if not whole.get("group.id"):
        raise SettingError("--group is missing: the group of the queue's workers")
    log_to_stderr()
    stop = Event()
    stop_on_signals(stop)
    with mask_secrets_in_errors(whole, os.environ):
        usable = checked(topic, resolve_secrets(whole, os.environ))
    RedeliveryTracker(usable).run(stop)
