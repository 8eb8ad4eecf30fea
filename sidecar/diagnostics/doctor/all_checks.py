"""All checks of `trimtab doctor` but those of the consumers' files: brokers, weights, Kubernetes."""

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Final

from trimtab.common.clock import Clock
from trimtab.common.errors import TrimtabError
from trimtab.sidecar.diagnostics.doctor.broker_checks import run_broker_checks
from trimtab.sidecar.diagnostics.doctor.checks import Finding, FindingLevel, failed
from trimtab.sidecar.readings.prometheus_query import PrometheusQuery
from trimtab.sidecar.settings.settings import SidecarSettings

REMEDY: Final = "correct what the message names"


def run_all_checks(settings: SidecarSettings, clock: Clock) -> list[Finding]:
    """Run the checks; they change nothing. Raises SaslAuthenticationError, TlsHandshakeError."""
    return [
        *run_broker_checks(settings, clock),
        *check_weight_query(settings, clock),
        *_check_kubernetes(settings),
    ]


def _check_kubernetes(settings: SidecarSettings) -> Iterable[Finding]:
    if settings.target not in ("kubernetes", "keda"):
        return ()
    if find_spec("kubernetes") is None:
        install = "pip install 'trimtab[kubernetes]'"
        return (failed("Kubernetes", "the Kubernetes client is not installed on this machine", install),)
    from trimtab.sidecar.diagnostics.doctor import kubernetes_checks  # noqa: PLC0415 - an extra

    try:
        return tuple(kubernetes_checks.run_kubernetes_checks(settings))
    except TrimtabError as error:
        return (failed("Kubernetes", str(error), REMEDY),)


def check_weight_query(settings: SidecarSettings, clock: Clock) -> Iterable[Finding]:
    """Return whether Prometheus answers with weights, if they come from there."""
    query = PrometheusQuery.of_settings(settings, clock)
    if query is None:
        return
    _, errors = query.fetch_weights(())
    if not errors:
        yield Finding("weights", FindingLevel.OK, f"weight-query is answered at {query.url}")
    for error in errors:
        message, _, remedy = error.removeprefix("weights: ").rpartition("; ")
        yield failed("weights", message, remedy)
