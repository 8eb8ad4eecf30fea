"""Errors of a user's transform; needs no Spark."""

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.errors import SparkSessionError, TransformError
from trimtab.consumer_sdk.lake.projection.projection import TableProjection
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionRefusedError("redis"), TransformError),
        (EOFError("model.pickle"), TransformError),
        (Py4JError("Method foo([]) does not exist"), TransformError),
        (Py4JNetworkError("Answer from Java side is empty"), SparkSessionError),
    ],
)
def test_an_error_of_the_transform_is_its_own_unless_the_jvm_is_gone(
    error: Exception, kind: type[TrimtabError]
) -> None:
    """It halts one table; taken for one of the connection to the JVM, it would end the process."""

    def transform(_: Any) -> Any:
        raise error

    decoded: Any = SimpleNamespace(rows=None, dead_letters=None)
    projection = TableProjection("lake.a", lambda *_: decoded, transform)
    with pytest.raises(kind, match=str(error).split("(")[0]):
        projection.project_records(RECORD_SCHEMA.empty_table(), lambda _: None)
