"""Logging of commands that run until they are stopped."""

import logging
import sys

from trimtab.cli.terminal import escape_control_characters
from trimtab.consumer_sdk.log_rate_limit import RateLimitFilter


class KafkaPythonLogFilter(RateLimitFilter):
    """Limits repeated lines of kafka-python, which logs four for each connection that a broker refuses.

    Its warnings of tasks that take 0.1 s, as on a busy machine, are for those who write such tasks: nobody
    who runs a command can act on them.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record."""
        if record.name == "kafka.net.selector" and "blocking the event loop" in record.getMessage():
            return False
        return not record.name.startswith("kafka.") or super().filter(record)


class OneLineFormatter(logging.Formatter):
    """Formats each message as one line: a name with a line break cannot forge another."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line; a traceback follows it in lines of its own."""
        record.message = escape_control_characters(record.message)
        return super().formatMessage(record)


def log_to_stderr() -> None:
    """Log to standard error: Trimtab's loggers from INFO on, all others from WARNING on."""
    form = "%(asctime)s %(levelname).1s %(name)s: %(message)s"
    handler = logging.StreamHandler(sys.stderr)
    # py4j logs a stack trace for a lost JVM, which Trimtab reports in one line
    handler.addFilter(lambda record: record.module != "java_gateway")
    handler.addFilter(KafkaPythonLogFilter())
    handler.setFormatter(OneLineFormatter(form, datefmt="%H:%M:%S"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("trimtab").setLevel(logging.INFO)
