"""Command-line options as one value, and commands whose implementation loads when they run.

A command declares its options in `options.py`; `run.py` has its implementation:

    class TopOptions(GroupOptions, run="trimtab.cli.top.run:top", settings=("topics", "capacity")):
        '''The help text.'''

        once: Annotated[bool, typer.Option("--once", help="Print one table and end.")] = False

    COMMAND = build_command(TopOptions)

Each name in `settings` becomes an option of the sidecar's settings. `run` is called with one
TopOptions.
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

from trimtab.common.settings.settings_model import NO_DEFAULT_TEXT, ByteRate, Duration, Setting, list_settings

KafkaPairs: TypeAlias = Annotated[
    list[str] | None, typer.Option(help="librdkafka's name=value; a secret as ${file:…} or ${env:…}.")
]

_METAVARS: Final[Mapping[Any, str]] = {Duration: "TIME", ByteRate: "RATE", int: "NUMBER", float: "NUMBER"}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
@dataclasses.dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """Base of the options of one command; a subclass becomes a frozen dataclass."""

    # settings on the command line, as text: the settings model parses it
    flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    given: frozenset[str] = frozenset()  # options on the command line, defaults excluded
    run_target: ClassVar[str] = ""  # "module:function"
    setting_names: ClassVar[Sequence[str]] = ()
    setting_notes: ClassVar[Mapping[str, str]] = {}  # help texts that replace the settings model's

    def __init_subclass__(
        cls, *, run: str = "", settings: Sequence[str] = (), notes: Mapping[str, str] | None = None
    ) -> None:
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


_BASE_FIELDS: Final = frozenset(field.name for field in dataclasses.fields(CommandOptions))


def build_command(options: type[CommandOptions]) -> Callable[..., None]:
    """Return the function that typer makes a command of."""
    flags = _list_flags(options) if options.setting_names else []
    context = _build_parameter("ctx", typer.Context, dataclasses.MISSING)
    parameters = [context, *flags, *_list_own_parameters(options)]
    command: Any = partial(_run_command, options)
    # typer reads name, help and options from these, as from any function
    command.__name__ = options.run_target.partition(":")[2]
    command.__doc__ = inspect.getdoc(options)
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command  # type: ignore[no-any-return]


def _run_command(options: type[CommandOptions], ctx: typer.Context, **values: Any) -> None:
    own = {name: values.pop(name) for name in _list_own_fields(options)}
    given = frozenset(name for name in (*own, *values) if _is_given(ctx, name))
    # only flags on the command line: the default of a switch (False) must not win over the file
    flags = {name.replace("_", "-"): value for name, value in values.items() if name in given}
    module, _, function = options.run_target.partition(":")
    run = getattr(importlib.import_module(module), function)  # only now, so that --help stays quick
    run(options(flags=flags, given=given, **own))


def _list_flags(options: type[CommandOptions]) -> list[inspect.Parameter]:
    from trimtab.sidecar.settings.options import SidecarOptions  # noqa: PLC0415 - slow, and many do without

    settings = {one.name: one for one in list_settings(SidecarOptions)}
    return [_build_flag(settings[name], options.setting_notes.get(name)) for name in options.setting_names]


def _is_given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _list_own_fields(options: type[CommandOptions]) -> "dict[str, dataclasses.Field[Any]]":
    return {field.name: field for field in dataclasses.fields(options) if field.name not in _BASE_FIELDS}


def _list_own_parameters(options: type[CommandOptions]) -> list[inspect.Parameter]:
    hints = get_type_hints(options, include_extras=True)
    fields = _list_own_fields(options).items()
    return [_build_parameter(name, hints[name], field.default) for name, field in fields]


def _build_flag(setting: Setting, note: str | None) -> inspect.Parameter:
    default = "" if setting.default in (None, NO_DEFAULT_TEXT) else f" (default {setting.default})"
    text = note or f"{setting.description.removesuffix('.')}{default}."
    kind, metavar = _get_flag_type(setting.annotation)
    option = typer.Option(f"--{setting.name}", help=text, metavar=metavar)
    return _build_parameter(setting.field_name, Annotated[kind, option], None)


def _build_parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if default is dataclasses.MISSING else default
    # keyword-only: an option without a default may follow one that has a default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


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
