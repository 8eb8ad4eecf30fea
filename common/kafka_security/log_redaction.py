"""Keep SASL credentials out of kafka-python's DEBUG log, which dumps every request."""

import logging
import re
from typing import Final

KAFKA_PYTHON_LOGGERS: Final = ("kafka.net.connection", "kafka.protocol.parser")
_SASL_LOG_LINE: Final = re.compile(r"Sasl\w*Request|Send: ")


class _SaslLogFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        # SASL requests, and "Send: " with the raw bytes of any request
        return record.levelno > logging.DEBUG or not _SASL_LOG_LINE.search(record.getMessage())


_SASL_LOG_FILTER: Final = _SaslLogFilter()


def redact_sasl_logs() -> None:
    """Install the filter for this process. Idempotent."""
    for name in KAFKA_PYTHON_LOGGERS:
        logging.getLogger(name).addFilter(_SASL_LOG_FILTER)  # one instance: addFilter skips duplicates
