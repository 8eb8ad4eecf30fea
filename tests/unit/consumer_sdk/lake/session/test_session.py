"""What the start of a Spark session changes in its process."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from trimtab.consumer_sdk.lake.session import spark_session as session


@pytest.fixture
def _keep_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def handle_of_application(*_: Any) -> None:
    """The application's way to stop."""


def handle_of_pyspark(*_: Any) -> None:
    """Cancels jobs, and makes the running call fail."""


@pytest.mark.parametrize(
    ("own", "kept"),
    [
        (handle_of_application, handle_of_application),
        (signal.SIG_IGN, signal.SIG_IGN),
        (signal.default_int_handler, handle_of_pyspark),
    ],
)
@pytest.mark.usefixtures("_keep_handler")
def test_an_application_keeps_its_handler_of_sigint(
    monkeypatch: pytest.MonkeyPatch, own: Any, kept: Any
) -> None:
    """PySpark's would end `trimtab ingest` by an error of Spark; it replaces Python's own only."""

    class Context:
        """Installs a handler, as SparkContext does."""

        @staticmethod
        def getOrCreate(conf: Any) -> None:  # noqa: N802 - PySpark's name
            assert conf.get("spark.app.name") == "trimtab"
            signal.signal(signal.SIGINT, handle_of_pyspark)

    monkeypatch.setattr(session, "SparkContext", Context)
    signal.signal(signal.SIGINT, own)
    session._create_context({"spark.app.name": "trimtab"})  # pyright: ignore[reportPrivateUsage]
    assert signal.getsignal(signal.SIGINT) is kept


@pytest.mark.usefixtures("_keep_handler")
def test_a_signal_during_the_launch_of_the_jvm_is_handled_after_it() -> None:
    """An interrupted launch would leave a JVM behind."""
    steps: list[str] = []
    signal.signal(signal.SIGINT, lambda *_: steps.append("handled"))
    with session._defer_signals():  # pyright: ignore[reportPrivateUsage]
        signal.raise_signal(signal.SIGINT)
        steps.append("launched")
    assert steps == ["launched", "handled"]
    signal.raise_signal(signal.SIGINT)
    assert steps == ["launched", "handled", "handled"]
