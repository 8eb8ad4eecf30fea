"""Keeps logins out of kafka-python's log, which at DEBUG shows every request, with its bytes."""

import logging
import re
from typing import Final

KAFKA_PYTHON_LOGGERS: Final = ("kafka.net.connection", "kafka.protocol.parser")
_SASL_LOG_LINE: Final = re.compile(r"Sasl\w*Request|Send: ")


class _SaslLogFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a line is to be written: requests to log in, and raw bytes, are not."""
        return record.levelno > logging.DEBUG or not _SASL_LOG_LINE.search(record.getMessage())


_SASL_LOG_FILTER: Final = _SaslLogFilter()


def redact_sasl_logs() -> None:
    """Let kafka-python log no logins in this process; may be called often."""
    for name in KAFKA_PYTHON_LOGGERS:
        logging.getLogger(name).addFilter(_SASL_LOG_FILTER)  # the same one is added once
