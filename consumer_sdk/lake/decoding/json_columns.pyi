from collections.abc import Mapping
from typing import Any

NOT_AN_OBJECT: str
NOT_UTF8: str
NOT_JSON: str
LONE_SURROGATE: str
TOO_DEEP: str
ISO: str
EPOCH_SCALES: Mapping[str, int]
DAYS: str

def read_objects(
    values: Any, schema: Any, rules: Mapping[str, str]
) -> tuple[Any, dict[int, tuple[str | None, str]]]: ...
def name_type(kind: Any) -> str: ...
