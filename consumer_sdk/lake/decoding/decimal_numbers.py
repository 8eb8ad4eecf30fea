"""Finds numbers that keep Spark's parser busy for minutes in a column of type DECIMAL.

Java writes 1e99999999 out before it rounds, and reads the digits of a text in quadratic time. So JSON with
a DECIMAL in its schema may have no number whose exponent has more than three digits, and the DECIMAL no text
of such a number, or of 1000 digits; numbers of that length Spark's parser refuses itself.
"""

from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StringType, StructField, StructType

from trimtab.consumer_sdk.lake.untyped_arrow import pc

# Possessive, so that no value takes quadratic time. Texts may have commas and escapes.
_TEXT_PART: Final = r"(?:[\p{Nd}.,+-]|\\u(?!00[46]5)\p{XDigit}{4})"
_EXPONENT_MARK: Final = r"(?:[eE]|\\u00[46]5)"
_POSSIBLE_TEXT: Final = rf"""["'](?:{_TEXT_PART}{{1000}}+|{_TEXT_PART}++{_EXPONENT_MARK}{_TEXT_PART}{{4}})"""
_POSSIBLE_NUMBER: Final = r"[\s:\[,][\d.+-]++[eE][\d+-]{4}"
_STRING: Final = r"""(?s)"(?:[^"\\]|\\.)*+"?|'(?:[^'\\]|\\.)*+'?"""  # or from a quote without a second
_HUGE_TEXT: Final = r'"[+-]?(?:[\p{Nd}.]++[eE][+-]?0*+\p{Nd}{4}|[\p{Nd}.]{1000})[^"]*+"(?!:)'
_HUGE_NUMBER: Final = r"[\d.][eE][+-]?0*+\d{4}"
# A superset, in Arrow's expressions over bytes: any byte beyond ASCII may be of a digit.
_DIGIT_BYTES: Final = r"(?:[0-9.,+\-\x{80}-\x{ff}]|\\u[0-9A-Fa-f]{4})"
_SUSPECT: Final = rf"(?:[eE]|\\u00[46]5){_DIGIT_BYTES}{{4}}|{_DIGIT_BYTES}{{200}}"


def has_decimal(schema: StructType) -> bool:
    """Return whether a column of a schema is, or contains, a DECIMAL."""
    return _replace_decimals(schema) is not None


def may_have_huge_decimal(values: Any) -> bool:
    """Return whether any of these JSON values, an Arrow column of bytes, may have such a number.

    Where none may, Spark need not look: that would take as long as parsing.
    """
    return bool(pc.any(pc.match_substring_regex(values, _SUSPECT)).as_py())


def find_huge_decimal(text: Column, schema: StructType, corrupt_column: str) -> Column | None:
    """Return whether JSON has such a number in a column of the schema; None: no column is a DECIMAL."""
    decimals = _replace_decimals(schema)
    if not isinstance(decimals, StructType):
        return None
    with_corrupt = StructType([*decimals, StructField(corrupt_column, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": corrupt_column}
    parsed = sql.from_json(text, with_corrupt, options)
    # Spark also converts texts that `parsed` lacks: those before an error, those of a key that comes twice
    lacks_some = parsed.getField(corrupt_column).isNotNull() | sql.try_parse_json(text).isNull()
    has_text = sql.regexp_replace(sql.to_json(parsed), ",", "").rlike(_HUGE_TEXT)
    # `parsed` has numbers rounded to a DOUBLE
    has_number = sql.regexp_replace(text, _STRING, "").rlike(_HUGE_NUMBER)
    is_possible = text.rlike(f"{_POSSIBLE_TEXT}|{_POSSIBLE_NUMBER}")
    return sql.when(is_possible, has_number | lacks_some | has_text)


def _replace_decimals(kind: DataType) -> DataType | None:
    """Return a type of the parts that are a DECIMAL, as text; None: there are none."""
    match kind:
        case DecimalType():
            return StringType()
        case ArrayType():
            inner = _replace_decimals(kind.elementType)
            return ArrayType(inner) if inner else None
        case MapType():
            inner = _replace_decimals(kind.valueType)
            return MapType(kind.keyType, inner) if inner else None
        case StructType():
            found = [(field.name, _replace_decimals(field.dataType)) for field in kind]
            fields = [StructField(name, inner) for name, inner in found if inner]
            return StructType(fields) if fields else None
        case _:
            return None
