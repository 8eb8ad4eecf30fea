"""Keys that expire while `trimtab ingest` runs: it goes on by itself.

Amazon's SDK reads a profile once; the process that a profile names is asked again before its keys expire.
"""

from collections.abc import Callable
from typing import Any

import pytest

from object_store.ingest import COUNT, PARTITIONS, Ingest, produce
from object_store.readers import Place, read_table
from object_store.rig import ObjectStoreRig

pytestmark = [pytest.mark.object_store, pytest.mark.broker]

REFUSED = "the store does not know these credentials"


@pytest.mark.parametrize(("table_format", "writer"), [("iceberg", "arrow"), ("delta", "spark")])
def test_keys_that_expired_are_renewed_by_the_profiles_process(
    table_format: str,
    writer: str,
    object_store: ObjectStoreRig,
    ingest: Ingest,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No record is lost or doubled, and the process is the same."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    user = object_store.user
    settings = {"lake.format": table_format, "lake.file.writer": writer, **ingest.to_namespace("renewed")}
    user.renew_keys()
    process = ingest.start(settings | object_store.settings(table_format), **user.environ)

    def read() -> list[Place]:
        return read_table(object_store, table_format, f"renewed.{ingest.table}")

    def wait_until(condition: Callable[[], bool]) -> None:
        eventually(lambda: condition() or process.poll() is not None, timeout=90)
        assert process.poll() is None, ingest.read_log()

    wait_until(lambda: len(read()) == COUNT)
    user.expire_keys()
    produce(ingest.common["bootstrap.servers"], ingest.topic)
    wait_until(lambda: REFUSED in ingest.read_log())
    assert len(read()) == COUNT
    user.renew_keys()
    wait_until(lambda: len(read()) >= 2 * COUNT)
    assert ingest.stop() == [0], ingest.read_log()
    assert read() == [(p, offset) for p in range(PARTITIONS) for offset in range(2 * COUNT // PARTITIONS)]
