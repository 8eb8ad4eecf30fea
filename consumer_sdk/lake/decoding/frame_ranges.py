"""Ranges of the values that a transform returns, as `value_ranges` keeps to them for decoders.

A text must be UTF-8, too: a cast from BINARY checks nothing. A row has no record of its own, so that its
evaluation fails; with `lake.out.of.range: null` the value is null.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from trimtab.consumer_sdk.lake.decoding.value_ranges import MICROS, YEARS
from trimtab.consumer_sdk.lake.schema.column_mapping import quote_path

_LIMITED_TYPES: Final = (StringType, DateType, TimestampType, TimestampNTZType)
_FIRST_DAY: Final = "0001-01-01"
_LAST_TIME: Final = "9999-12-31 23:59:59.999999"


def limit_frame(frame: DataFrame, *, nulls: bool) -> DataFrame:
    """Return the rows with null for each value outside its range, or else rows whose evaluation fails."""
    if not _is_limited(frame.schema):
        return frame
    limit = _Limit(nulls)
    columns = [limit.apply(c.name, sql.col(quote_path((c.name,))), c.dataType) for c in frame.schema]
    return frame.select(*(column.alias(c.name) for c, column in zip(frame.schema, columns, strict=True)))


class _Limit:
    def __init__(self, nulls: bool) -> None:  # noqa: FBT001 - a setting
        self._nulls = nulls

    def apply(self, path: str, value: Column, kind: DataType) -> Column:
        """Return the value within its range."""
        if isinstance(kind, StructType):
            return self._limit_fields(path, value, kind)
        if isinstance(kind, ArrayType) and _is_limited(kind):
            return sql.transform(value, lambda item: self.apply(path, item, kind.elementType))
        if isinstance(kind, MapType) and _is_limited(kind):
            keyed = sql.transform_keys(
                value, lambda key, _: _Limit(nulls=False).apply(path, key, kind.keyType)
            )
            return sql.transform_values(
                keyed, lambda _, item: self.apply(f"{path}.value", item, kind.valueType)
            )
        return self._limit_plain(path, value, kind) if isinstance(kind, _LIMITED_TYPES) else value

    def _limit_fields(self, path: str, value: Column, kind: StructType) -> Column:
        if not _is_limited(kind):
            return value
        fields = [
            self.apply(f"{path}.{field.name}", value.getField(field.name), field.dataType).alias(field.name)
            for field in kind
        ]
        return sql.when(value.isNotNull(), sql.struct(*fields))

    def _limit_plain(self, path: str, value: Column, kind: DataType) -> Column:
        if self._nulls:
            return sql.when(_is_inside(value, kind), value)
        if isinstance(kind, StringType):
            reason = sql.concat(sql.lit(f"{path}: not UTF-8: 0x"), sql.substring(sql.hex(value), 1, 60))
        else:
            text = value.cast("string")
            reason = sql.concat(sql.lit(f"{path}: "), text, sql.lit(f" is {YEARS} of a {kind.typeName()}"))
        is_inside = value.isNull() | _is_inside(value, kind)
        return sql.when(is_inside, value).otherwise(sql.raise_error(reason).cast(kind))


def _is_limited(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_is_limited(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _is_limited(kind.elementType)
    if isinstance(kind, MapType):
        return _is_limited(kind.keyType) or _is_limited(kind.valueType)
    return isinstance(kind, _LIMITED_TYPES)


def _is_inside(value: Column, kind: DataType) -> Column:
    if isinstance(kind, StringType):
        return sql.is_valid_utf8(value)
    if isinstance(kind, TimestampType):  # by number: texts of times depend on the session's zone
        return sql.unix_micros(value).between(*MICROS)
    return value.between(*(sql.lit(end).cast(kind) for end in (_FIRST_DAY, _LAST_TIME)))
