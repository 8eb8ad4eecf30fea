"""Exports decisions as spans, with the setting `telemetry`."""

from trimtab.sidecar.records.iteration_report import Reporter
from trimtab.sidecar.settings.settings import SidecarSettings


def open_decision_spans(settings: SidecarSettings) -> tuple[Reporter, ...]:
    """Return the reporter of a group's decisions; none while telemetry is off."""
    if not settings.telemetry:
        return ()
    from trimtab.sidecar.reporting.otel_decision_spans import OtelDecisionSpans  # noqa: PLC0415 - it needs an extra

    return (OtelDecisionSpans(settings.group),)
