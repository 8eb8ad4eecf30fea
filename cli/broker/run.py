"""`trimtab broker`: a Kafka broker on this machine for trying things out."""

from trimtab.cli.broker.broker_config import ASSIGNOR_PROPERTIES
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.cli.broker.options import BrokerOptions
from trimtab.cli.terminal import print_line
from trimtab.common.errors import SettingError


def broker(options: BrokerOptions) -> None:
    """Run a broker until a signal. Raises SettingError and the errors of `EmbeddedBroker.start`."""
    properties = _parse_properties(options.settings or [])
    if options.assignor_plugin:
        properties = {**ASSIGNOR_PROPERTIES, **properties}
    print_line("starting Kafka; it is ready once its address is printed", err=True)
    server = EmbeddedBroker(options.port, data=options.data, keep=options.keep, properties=properties)
    with server:
        # alone on standard output: scripts read the address of --port 0 there
        print_line(f"bootstrap.servers={server.bootstrap}")
        kept = "kept" if options.keep or options.data else "removed at the end"
        print_line(f"data and log in {server.folder} ({kept}); Ctrl-C stops the broker", err=True)
        server.wait()


def _parse_properties(settings: list[str]) -> dict[str, str]:
    pairs = [setting.removeprefix("set ").partition("=") for setting in settings if setting != "set"]
    for name, equals, value in pairs:
        if not (name and equals):
            raise SettingError(f"{name + equals + value!r} is not a broker property; write KEY=VALUE")
    return {name.strip(): value.strip() for name, _, value in pairs}
