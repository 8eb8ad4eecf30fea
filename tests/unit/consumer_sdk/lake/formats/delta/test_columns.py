"""Columns of a new Delta table."""

import pytest
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType

from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.formats.delta.columns import build_columns

INNER = StructType([StructField("a=b", IntegerType())])


@pytest.mark.parametrize("kind", [INNER, ArrayType(INNER), MapType(StringType(), ArrayType(INNER))])
def test_a_name_that_delta_refuses_is_told(kind: StructType) -> None:
    """Delta itself lists the characters, not the name."""
    with pytest.raises(TableSchemaMismatchError, match="no column named 'a=b'"):
        build_columns(StructType([StructField("id", IntegerType()), StructField("c", kind)]), ())
