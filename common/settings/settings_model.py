"""Settings: typed models that make the checks, the error texts, `--help` and the docs' tables.

A model lists its settings once, each with a type, a default and a description:

    class TopicSettings(SettingsModel, owner="the sidecar"):
        capacity: ByteRate = setting("Throughput that one consumer sustains.")
        scale_up_policies: int = setting("Replicas to add at once.", default=4)

    class QueueSettings(SettingsModel, owner="a queue", prefix="trimtab.queue.", separator="."):
        max_deliveries: int = setting("Deliveries before a message is given up.", default=5)

Settings are written `scale-up-policies` and `trimtab.queue.max.deliveries`: the prefix and the
field's name with the separator in place of "_"; `setting(..., name="lake.file.writer")` wins.
Construct a model directly from Python values, or validate the text of a file or command line:

    settings = validate_settings(TopicSettings, {"capacity": "2.3 MB/s"})   # raises SettingError

`make docs` rewrites each block of a page between `<!-- settings:begin MODULE:CLASS -->` and
`<!-- settings:end -->`; a test compares them.

Value types: Duration (seconds), ByteRate (bytes/s), ByteSize (bytes), TopicList, TopicGroups,
`Literal`, enums, `Path`, numbers, text, and other models. `Parsed` makes further types that have a
short form.
"""

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from functools import cache, partial
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    TypeVar,
    dataclass_transform,
    get_args,
    get_type_hints,
)

from trimtab.common.errors import SettingError, suggest_name
from trimtab.common.units import parse_bytes, parse_rate, parse_seconds

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema, ErrorDetails

NO_DEFAULT_TEXT: Final = "–"  # noqa: RUF001 - the dash of the docs' tables

# by the first word of pydantic's error type
_TYPE_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "bool": "true or false",
    "dataclass": "a mapping of names to values",
    "dict": "a mapping of names to values",
    "float": "a number, like 0.9",
    "int": "a whole number, like 3",
    "mapping": "a mapping of names to values",
    "path": "a path, like /etc/trimtab/file",
    "string": "text; put it into quotes",
    "tuple": "a list",
}

_SHAPE_ERRORS: Final = frozenset({"dataclass_type", "tuple_type", "string_pattern_mismatch"})
_CHOICE_ERRORS: Final = frozenset({"enum", "literal_error"})
_SCALAR_TYPES: Final = frozenset({"str", "int", "float", "bool"})
_NAME_CUTOFF: Final = 0.55
MIN_GROUP_TOPICS: Final = 2
CO_PARTITIONED_EXAMPLE: Final = (
    'groups of topics, like [[orders, payments]] or "orders,payments; clicks,views"'
)
_VALUE: Final = "value"  # the name in errors of `units`; the setting's own name replaces it


def setting(  # noqa: PLR0913 - a declaration, all but one by keyword
    description: str,
    *,
    default: Any = dataclasses.MISSING,
    default_factory: Any = dataclasses.MISSING,
    name: str | None = None,
    default_text: str | None = None,
    example: str | None = None,
    secret: bool = False,
) -> Any:
    """Return a field of a SettingsModel; without a default the setting is required.

    `default_text` describes a default of None ("the brokers' default"), `example` completes "write"
    in errors ('names with commas, like "a,b"').
    """
    texts = {"description": description, "name": name, "default_text": default_text, "example": example}
    field: Any = dataclasses.field  # dataclasses' overloads know one of the two defaults at a time
    defaults = {"default": default, "default_factory": default_factory}
    return field(**defaults, metadata={**texts, "secret": secret}, repr=not secret)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting,))
class SettingsModel:
    """Base of all settings: each subclass becomes a frozen dataclass with keyword arguments."""

    setting_owner: ClassVar[str] = "Trimtab"
    _prefix: ClassVar[str] = ""
    _separator: ClassVar[str] = "-"
    __pydantic_config__: ClassVar[dict[str, Any]]

    def __init_subclass__(
        cls, *, owner: str | None = None, prefix: str | None = None, separator: str | None = None
    ) -> None:
        super().__init_subclass__()
        cls.setting_owner = cls.setting_owner if owner is None else owner
        cls._prefix = cls._prefix if prefix is None else prefix
        cls._separator = cls._separator if separator is None else separator
        # plain data, so that --help need not load pydantic, a fifth of its time
        cls.__pydantic_config__ = {"extra": "forbid", "alias_generator": cls.get_setting_name}
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def get_setting_name(cls, field_name: str) -> str:
        """Return the setting's name in files and on the command line."""
        field = cls.__dataclass_fields__[field_name]  # type: ignore[attr-defined]
        # a trailing "_" is for names that Python reserves: `in_`
        derived = cls._prefix + field_name.rstrip("_").replace("_", cls._separator)
        return field.metadata.get("name") or derived

    def find_problems(self, given: Collection[str]) -> Iterable[str]:
        """Yield contradictions between settings, without I/O; `given` are the names that were set."""
        del given
        return ()


SettingsT = TypeVar("SettingsT", bound=SettingsModel)


@dataclasses.dataclass(frozen=True, slots=True)
class Parsed:
    """Annotation of a type that has a short form in text."""

    parse: Callable[[Any], Any]  # from the short form; raises SettingError or ValueError
    render: Callable[[Any], str] = str  # to the short form

    def __get_pydantic_core_schema__(self, source: Any, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        """Parse before pydantic checks the type."""
        from pydantic_core import core_schema  # noqa: PLC0415 - --help does without

        return core_schema.no_info_before_validator_function(self._parse, handler(source))

    def _parse(self, value: Any) -> Any:
        try:
            return self.parse(value)
        except SettingError as error:
            # a ValueError is collected with the others, anything else would end the check
            raise ValueError(str(error).removeprefix(f"{_VALUE}: ")) from None


def parse_topic_list(value: Any) -> Any:
    """Return the names in "a,b", or the one pattern "^a.*" (librdkafka's); a list as it is."""
    if not isinstance(value, str):
        return value
    names = (value,) if value.startswith("^") else re.split(r"\s*,\s*", value.strip())
    if not all(names):
        raise ValueError(f'a name is empty in {value!r}; write names with commas, like "orders,clicks"')
    return tuple(names)


def parse_topic_groups(value: Any) -> Any:
    """Return the groups in "a,b; c,d", or in a list of lists; a topic belongs to one group at most."""
    groups = value.split(";") if isinstance(value, str) else value
    if not isinstance(groups, list | tuple):
        return value
    parsed = [parse_topic_list(group) for group in groups]
    lists = [group for group in parsed if isinstance(group, list | tuple)]
    if any(len(group) < MIN_GROUP_TOPICS for group in lists):
        raise ValueError(f"a group has two topics or more; write {CO_PARTITIONED_EXAMPLE}")
    names = [str(name) for group in lists for name in group]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice!r} is there twice; a topic belongs to one group")
    return parsed


def format_duration(seconds: float) -> str:
    """Return "30 s", "250 ms", "10 min" of seconds."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:g} ms"
    for unit, factor in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds and seconds % factor == 0:
            return f"{seconds / factor:g} {unit}"
    return f"{seconds:g} s"


def format_size(size: float) -> str:
    """Return "64 MB" of bytes, without rounding."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size:g} B"


def format_byte_rate(rate: float) -> str:
    """Return "2.3 MB/s" of bytes/s, without rounding."""
    return f"{format_size(rate)}/s"


Duration = Annotated[float, Parsed(partial(parse_seconds, name=_VALUE), format_duration)]
ByteRate = Annotated[float, Parsed(partial(parse_rate, name=_VALUE), format_byte_rate)]
ByteSize = Annotated[int, Parsed(partial(parse_bytes, name=_VALUE), format_size)]
TopicList = Annotated[tuple[str, ...], Parsed(parse_topic_list, ",".join)]
TopicGroups = Annotated[
    tuple[tuple[str, ...], ...], Parsed(parse_topic_groups, lambda groups: "; ".join(map(",".join, groups)))
]


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """Description of one setting."""

    name: str
    field_name: str
    annotation: Any
    default: str | None  # as text; None if the setting is required
    default_is_value: bool  # whether that text is a valid value
    description: str
    example: str | None
    secret: bool


def list_settings(model: type[SettingsModel]) -> tuple[Setting, ...]:
    """Return the settings of a model, in the order of their declaration."""
    hints = get_type_hints(model, include_extras=True)
    return tuple(
        Setting(
            name=model.get_setting_name(field.name),
            field_name=field.name,
            annotation=hints[field.name],
            default=(text := _render_default(field, hints[field.name])),
            default_is_value=text not in (None, NO_DEFAULT_TEXT, field.metadata.get("default_text")),
            description=field.metadata.get("description", ""),
            example=field.metadata.get("example"),
            secret=field.metadata.get("secret", False),
        )
        for field in dataclasses.fields(model)  # type: ignore[arg-type]
    )


def render_settings_table(model: type[SettingsModel]) -> str:
    """Return a Markdown table of a model's settings: name, default, description."""
    rows = [
        f"| `{one.name}` | {_render_cell(one)} | {one.description.replace('|', chr(92) + '|')} |"
        for one in list_settings(model)
    ]
    return "\n".join(["| setting | default | |", "|---|---|---|", *rows])


def validate_settings(
    model: type[SettingsT],
    values: Mapping[str, Any],
    owner: str | None = None,
    also_known: Collection[str] = (),
) -> SettingsT:
    """Return the settings of `values`, by their written names; names in `also_known` are ignored.

    Raises one SettingError with all problems.
    """
    owner = owner or model.setting_owner
    settings = list_settings(model)
    names = [one.name for one in settings]
    unknown = [name for name in values if name not in names and name not in also_known]
    if unknown:
        known = [*names, *also_known]
        raise SettingError("; ".join(explain_unknown_name(n, known, owner) for n in unknown))
    from pydantic import ValidationError  # noqa: PLC0415 - --help does without

    hashable: Any = model  # mypy takes the type of a dataclass for unhashable
    own = {name: value for name, value in values.items() if name in names}
    try:
        valid: SettingsT = _get_adapter(hashable).validate_python(own)
    except ValidationError as error:
        by_name = {one.name: one for one in settings}
        problems = (_explain_error(problem, by_name, owner) for problem in error.errors())
        # each once: a union has an error per member; not `from error`, which shows values
        raise SettingError("; ".join(dict.fromkeys(problems))) from None
    contradictions = list(valid.find_problems(own.keys()))
    if contradictions:
        raise SettingError("; ".join(contradictions))
    return valid


def explain_unknown_name(name: str, known: Collection[str], owner: str) -> str:
    """Return an error text that suggests the nearest known name."""
    hint = suggest_name(name, known, cutoff=_NAME_CUTOFF)
    hint = hint or f"; the settings are {', '.join(known)}"
    return f"{name!r} is not a setting of {owner}{hint}"


@cache  # building a model's validator takes milliseconds
def _get_adapter(model: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter  # noqa: PLC0415 - --help does without

    return TypeAdapter(model)


def _explain_error(problem: "ErrorDetails", settings: Mapping[str, Setting], owner: str) -> str:
    place = [str(part) for part in problem["loc"]]
    kind = problem["type"]
    name = ".".join(place)
    top = settings[place[0]]
    if kind == "missing":
        needed = f"; {owner} needs it: {top.description}" if len(place) == 1 else ""
        return f"{name} is missing{needed}"
    if kind == "value_error":
        return f"{name}: {problem['msg'].removeprefix('Value error, ')}"
    if kind == "unexpected_keyword_argument":
        return f"{name} is not a part of {place[0]}{_format_hint(top)}"
    if len(place) > 1 and place[-1] in _SCALAR_TYPES:  # a union has one error for each type
        return f"{'.'.join(place[:-1])}: write text, a number, or true or false"
    if top.example is not None and (len(place) == 1 or kind in _SHAPE_ERRORS):
        return f"{name}: write {top.example}"
    return f"{name}: {_explain_type(problem, secret=top.secret)}"


def _explain_type(problem: "ErrorDetails", *, secret: bool) -> str:
    kind = problem["type"]
    given = problem["input"]
    expected = _TYPE_DESCRIPTIONS.get(kind.partition("_")[0])
    if expected is not None:
        return f"write {expected}"
    # a value is shown for a choice only: its words hold no secret
    shown = kind in _CHOICE_ERRORS and isinstance(given, str) and not secret
    wrong = f"{given!r} is not one of the choices; " if shown else ""
    message = problem["msg"][:1].lower() + problem["msg"][1:]
    return f"{wrong}{message}".replace("input should be", "write")


def _format_hint(top: Setting) -> str:
    return "" if top.example is None else f"; write {top.example}"


def _render_default(field: "dataclasses.Field[Any]", annotation: Any) -> str | None:
    if field.metadata.get("default_text") is not None:
        return str(field.metadata["default_text"])
    if field.default_factory is not dataclasses.MISSING:
        return render_value(field.default_factory(), annotation)
    return None if field.default is dataclasses.MISSING else render_value(field.default, annotation)


def render_value(value: Any, annotation: Any) -> str:
    """Return a value in its written form; a dash for None and empty collections."""
    if value is None or value in ((), {}, ""):
        return NO_DEFAULT_TEXT
    if isinstance(value, bool):
        return str(value).lower()  # YAML's true, not Python's True
    parsed = next(_find_parsed(annotation), None)
    if parsed is not None:
        return parsed.render(value)
    return str(value.value if isinstance(value, Enum) else value)


def _find_parsed(annotation: Any) -> Iterator[Parsed]:
    yield from (one for one in getattr(annotation, "__metadata__", ()) if isinstance(one, Parsed))
    for part in get_args(annotation):  # also from inside `X | None`
        if get_args(part):
            yield from _find_parsed(part)


def _render_cell(one: Setting) -> str:
    if one.default is None:
        return "required"
    return f"`{one.default}`" if one.default_is_value else one.default
