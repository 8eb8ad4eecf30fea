"""Trimtab's log records as OpenTelemetry's: text, severity, logger, and the span that was current."""

import logging

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider

_SEVERITIES = (
    (logging.CRITICAL, SeverityNumber.FATAL),
    (logging.ERROR, SeverityNumber.ERROR),
    (logging.WARNING, SeverityNumber.WARN),
    (logging.INFO, SeverityNumber.INFO),
    (logging.DEBUG, SeverityNumber.DEBUG),
)


class OtelLogHandler(logging.Handler):
    """Passes log records to a logger provider; the SDK's own handler is deprecated."""

    def __init__(self, provider: LoggerProvider) -> None:
        super().__init__()
        self._provider = provider

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one record on; the text is the one that standard error shows."""
        # Not the exception: its text may quote a record, which the log line leaves out.
        attributes = {} if record.exc_info is None else _describe_error(record)
        written_at = int(record.created * 1e9)
        self._provider.get_logger(record.name).emit(
            LogRecord(
                timestamp=written_at,
                observed_timestamp=written_at,
                severity_text=record.levelname,
                severity_number=map_severity(record.levelno),
                body=record.getMessage(),
                attributes=attributes,
            )
        )


def map_severity(level: int) -> SeverityNumber:
    """Return the severity of a level of `logging`."""
    return next((number for least, number in _SEVERITIES if level >= least), SeverityNumber.TRACE)


def _describe_error(record: logging.LogRecord) -> dict[str, str]:
    kind = record.exc_info[0] if record.exc_info else None
    return {} if kind is None else {"exception.type": kind.__name__}
