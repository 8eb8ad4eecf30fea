"""Keeps logins out of kafka-python's log, which at DEBUG shows every request, with its bytes."""

import logging
import re
from typing import Final

LOGGERS: Final = ("kafka.net.connection", "kafka.protocol.parser")
_LOGIN: Final = re.compile(r"Sasl\w*Request|Send: ")


class _NoLogins(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a line is to be written: requests to log in, and raw bytes, are not."""
        return record.levelno > logging.DEBUG or not _LOGIN.search(record.getMessage())


_NO_LOGINS: Final = _NoLogins()


def conceal() -> None:
    """Let kafka-python log no logins in this process; may be called often."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_NO_LOGINS)  # the same one is added once
