"""A mistake in the settings of a lake on an object store is named, in time, and without its secrets."""

from collections.abc import Iterator
from typing import Any

import pytest

from object_store.ingest import Ingest, produce
from object_store.proxy import ignore_condition, is_conditional_upload
from object_store.rig import WAREHOUSE, ObjectStoreRig, storage_settings
from object_store.servers import HOST, SECRET_KEY, Gateway, free_port

pytestmark = [pytest.mark.object_store, pytest.mark.broker]

OTHER_SECRET = "another-secret-of-nobody"  # noqa: S105


@pytest.fixture(scope="session")
def readonly(object_store: ObjectStoreRig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the same store, where every write is refused."""
    log = tmp_path_factory.mktemp("readonly") / "versitygw.log"
    with Gateway(object_store.gateway.bucket.parent, log, readonly=True) as gateway:
        yield gateway.address


@pytest.fixture
def settings(
    request: pytest.FixtureRequest,
    object_store: ObjectStoreRig,
    readonly: str,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Any]:
    """Settings with one mistake, given as a format and a name."""
    table_format, mistake = request.param
    if mistake == "old session":  # of a role whose keys were in the environment before
        monkeypatch.setenv("AWS_SESSION_TOKEN", "of-another-role")
    wrong = {
        "no bucket": {"lake.warehouse": "s3://missing/warehouse"},
        "wrong region": {"lake.s3.region": "us-west-2"},
        "wrong secret": {},
        "old session": {},
        "readonly": storage_settings(readonly),
        "no store": storage_settings(f"http://{HOST}:{free_port()}"),
        "no catalog": {"lake.catalog.uri": f"http://{HOST}:{free_port()}"},
    }[mistake]
    return {"lake.format": table_format, **object_store.settings(table_format), **wrong}


@pytest.mark.parametrize(
    ("settings", "secret", "advice"),
    [
        (("iceberg", "wrong region"), SECRET_KEY, "the bucket is in another region: set lake.s3.region"),
        (("iceberg", "wrong secret"), OTHER_SECRET, "the store does not know these credentials"),
        (("iceberg", "old session"), SECRET_KEY, "AWS_SESSION_TOKEN, which only keys of a role have"),
        (("iceberg", "readonly"), SECRET_KEY, "access denied: the credentials must allow"),
        (("iceberg", "no store"), SECRET_KEY, "is the address right"),
        (("iceberg", "no catalog"), SECRET_KEY, "is the address right (lake.catalog.uri"),
        (("delta", "no bucket"), SECRET_KEY, "the bucket does not exist: create it"),
        (("delta", "wrong region"), SECRET_KEY, "the bucket is in another region: set lake.s3.region"),
        (("delta", "wrong secret"), OTHER_SECRET, "the store does not know these credentials"),
        (("delta", "old session"), SECRET_KEY, "AWS_SESSION_TOKEN, which only keys of a role have"),
        (("delta", "readonly"), SECRET_KEY, "access denied: the credentials must allow"),
        (("delta", "no store"), SECRET_KEY, "is the address right"),
    ],
    indirect=["settings"],
    ids=lambda value: "-".join(value).replace(" ", "-") if isinstance(value, tuple) else "",
)
def test_a_mistake_is_named(
    settings: dict[str, Any], secret: str, advice: str, ingest: Ingest, eventually: Any
) -> None:
    """The log says what to do; no secret is in it, no offset moves, the process ends when it is told to."""
    process = ingest.start({**ingest.to_namespace("bad"), **settings}, AWS_SECRET_ACCESS_KEY=secret)
    eventually(lambda: advice in ingest.read_log() or process.poll() is not None, timeout=150)
    assert advice in ingest.read_log(), ingest.read_log()
    ingest.stop()
    assert secret not in ingest.read_log()
    assert ingest.count_committed() == 0, "nothing is written, so all of it is read again"


@pytest.mark.parametrize("table", ["new", "existing"])
def test_a_store_without_conditions_is_refused(
    table: str, object_store: ObjectStoreRig, ingest: Ingest, eventually: Any
) -> None:
    """Delta's writers would replace each other's commits there, those to an existing table, too."""
    warehouse = {"lake.warehouse": f"{WAREHOUSE}-without-conditions-{table}"}
    settings = {"lake.format": "delta", **object_store.settings("delta"), **warehouse}
    if table == "existing":
        ingest.start(settings | ingest.to_namespace("unconditional"))
        namespace = object_store.warehouse.parent / "warehouse-without-conditions-existing/unconditional"
        eventually((namespace / ingest.table / "_delta_log" / f"{1:020}.json").exists, timeout=90)
        ingest.close()
        produce(ingest.common["bootstrap.servers"], ingest.topic)
    with object_store.store.spoiling("unconditional", is_conditional_upload, ignore_condition):
        process = ingest.start(settings | ingest.to_namespace("unconditional"))
        eventually(lambda: process.poll() is not None, timeout=90)
    assert process.returncode == 2
    assert "ignores If-None-Match" in ingest.read_log(), ingest.read_log()
