"""Command-line options as one value, and commands whose implementation loads when they run.

A command declares its options in `options.py`, which imports nothing heavy, so that `--help` is
quick; `run.py` imports what it needs at its top and is loaded when the command runs:

    class TopOptions(GroupOptions, run="trimtab.cli.top.run:top", settings=("topics", "capacity")):
        '''The help text.'''

        once: Annotated[bool, typer.Option("--once", help="Print one table and end.")] = False

    COMMAND = build_command(TopOptions)

Each name in `settings` becomes an option of the sidecar's settings, with the model's description
and default as help. `run` is called with one TopOptions, whose `flags` maps the names of the
settings that were given to their text; the settings model parses them.
"""

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    TypeAlias,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import typer

from trimtab.common.settings_model import ByteRate, Duration, Setting, list_settings
from trimtab.sidecar.settings.options import SidecarOptions

KafkaPairs: TypeAlias = Annotated[
    list[str] | None, typer.Option(help="librdkafka's name=value; a secret as ${file:…} or ${env:…}.")
]

_METAVARS: Final[Mapping[Any, str]] = {Duration: "TIME", ByteRate: "RATE", int: "NUMBER", float: "NUMBER"}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
@dataclasses.dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """Base of the options of one command; a subclass becomes a frozen dataclass."""

    flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    run_target: ClassVar[str] = ""
    setting_names: ClassVar[Sequence[str]] = ()
    setting_notes: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(
        cls, *, run: str = "", settings: Sequence[str] = (), notes: Mapping[str, str] | None = None
    ) -> None:
        """Take the implementation ("module:function") and the settings that are options."""
        super().__init_subclass__()
        cls.run_target = run or cls.run_target
        cls.setting_names = (*cls.setting_names, *settings)
        cls.setting_notes = {**cls.setting_notes, **(notes or {})}
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)


class GroupOptions(CommandOptions, settings=("bootstrap", "group")):
    """Options that name a consumer group, by flags or a sidecar's settings file."""

    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file of the sidecar's settings; flags win.")
    ] = None
    kafka: KafkaPairs = None


def build_command(options: type[CommandOptions]) -> Callable[..., None]:
    """Return the function that typer makes a command of."""
    settings = {one.name: one for one in list_settings(SidecarOptions)}
    flags = [_build_flag(settings[name], options.setting_notes.get(name)) for name in options.setting_names]
    parameters = [*flags, *_list_own_parameters(options)]
    command: Any = partial(_run_command, options)
    command.__name__ = options.run_target.partition(":")[2]
    command.__doc__ = inspect.getdoc(options)
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command  # type: ignore[no-any-return]


def _run_command(options: type[CommandOptions], **values: Any) -> None:
    own = {field.name for field in dataclasses.fields(options)}
    # a switch that was left alone is False, and must not win over the file
    flags = {
        name.replace("_", "-"): value
        for name, value in values.items()
        if name not in own and value is not None and value is not False
    }
    module, _, function = options.run_target.partition(":")
    run = getattr(importlib.import_module(module), function)
    run(options(flags=flags, **{name: values[name] for name in own if name in values}))


def _list_own_parameters(options: type[CommandOptions]) -> list[inspect.Parameter]:
    hints = get_type_hints(options, include_extras=True)
    return [
        _build_parameter(field.name, hints[field.name], _get_default(field))
        for field in dataclasses.fields(options)
        if field.name != "flags"
    ]


def _get_default(field: "dataclasses.Field[Any]") -> Any:
    is_required = field.default is dataclasses.MISSING
    return inspect.Parameter.empty if is_required else field.default


def _build_flag(setting: Setting, note: str | None) -> inspect.Parameter:
    default = "" if setting.default in (None, "–") else f" (default {setting.default})"  # noqa: RUF001
    text = note or f"{setting.description.removesuffix('.')}{default}."
    kind, metavar = _get_flag_type(setting.annotation)
    option = typer.Option(f"--{setting.name}", help=text, metavar=metavar)
    return _build_parameter(setting.field_name, Annotated[kind, option], None)


def _build_parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


def _get_flag_type(annotation: Any) -> tuple[Any, str | None]:
    """Return the option's type and metavar: text that the model parses, paths and switches."""
    kinds = (annotation, *get_args(annotation))
    if bool in kinds:
        return bool, None
    if Path in kinds:
        return Path | None, None
    return str | None, next(filter(None, map(_get_metavar, kinds)), None)


def _get_metavar(kind: Any) -> str | None:
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(member.value for member in kind)
    return _METAVARS.get(kind)
