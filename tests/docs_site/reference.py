"""Writes the reference pages of the site from the code: settings, commands, metrics, Python API."""

import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import typer
from prometheus_client import Metric
from typer.core import TyperGroup

from docs_site.exported_metrics import build_consumer_registry, build_sidecar_registry
from docs_site.settings_docs import list_documented_models
from trimtab.cli.main import COMMANDS, build_app
from trimtab.common.settings.config_file import PATH_SETTINGS
from trimtab.common.settings.settings_model import NO_DEFAULT_TEXT, render_settings_table

API_MODULES: Final = {
    "trimtab.consumer_sdk": "Consumers",
    "trimtab.consumer_sdk.lake": "The lake",
    "trimtab.consumer_sdk.queues": "Work queues",
    "trimtab.testing": "Testing kit",
    "trimtab.assignor": "Placement",
    "trimtab.assignor.clients.kafka_python": "Assignor of kafka-python",
}

METRICS_INTRODUCTION: Final = """\
Generated from the registries behind `/metrics` of the sidecar and of the consumers. Units are in the names;
an unknown value has no sample. [The sidecar](sidecar.md#web-server) and [the lake](lake.md) say more."""
ASSIGNOR_CLASS: Final = "TrimtabAssignor"  # of the client plugins, which export nothing else


def render_reference_pages() -> dict[str, str]:
    """Return the generated pages by their file names."""
    return {
        "settings.md": render_settings_page(),
        "commands.md": render_commands_page(),
        "metrics.md": render_metrics_page(),
        "python-api.md": render_api_page(),
    }


_PATH_NAMES = ", ".join(f"`{name}`" for name in sorted(PATH_SETTINGS))
_PATHS = f"""\
## Relative paths

A relative path in a configuration file is relative to the file's folder, whatever the working folder
of the command: `trimtab ingest` and `trimtab tables --config ../shop/ingest.yaml` mean the same tables.
That holds for {_PATH_NAMES},
and for secret references, `${{file:…}}`.

Paths in options, such as `--warehouse` and `--set lake.warehouse=…`, and in `Consumer({{...}})` are
relative to the working folder. Settings of Spark (`spark.*`) and of a catalog (`lake.catalog.*`) are
passed on as they are."""


def render_settings_page() -> str:
    """Return the page of all settings."""
    parts = ["# Settings", "Generated from the settings models, which also check files and options.", _PATHS]
    for page, path in list_documented_models():
        module, name = path.split(":")
        model = getattr(importlib.import_module(module), name)
        # a table's own anchors belong to the page that has the table, too
        table = render_settings_table(model).replace("](#", f"]({page}#")
        owner = model.setting_owner
        parts += [
            f"## {owner[:1].upper()}{owner[1:]}: `{name}`",
            f"How to use them: [{page}]({page}).",
            table,
        ]
    return "\n\n".join(parts) + "\n"


def render_commands_page() -> str:
    """Return the page of all commands, from what `--help` prints."""
    text = "Generated from the commands; `trimtab COMMAND --help` prints the same."
    parts = ["# Commands", text, "## `trimtab`", _render_help(_get_group("demo").help)]
    for name in COMMANDS:
        parts += _render_command(_get_group(name).commands[name], f"trimtab {name}", 2)
    # settings link to sections of the page that has their table
    return "\n\n".join(parts).replace("](#", "](sidecar.md#") + "\n"


def _get_group(name: str) -> TyperGroup:
    command = typer.main.get_command(build_app(name))
    assert isinstance(command, TyperGroup)
    return command


def _render_command(command: Any, name: str, level: int) -> Iterator[str]:
    context = typer.Context(command, info_name=name)
    yield f"{'#' * level} `{name}`"
    yield f"    {name} {' '.join(command.collect_usage_pieces(context))}"
    yield _render_help(command.help)
    rows = [
        _render_parameter(one) for one in command.get_params(context) if not getattr(one, "hidden", False)
    ]
    yield "\n".join(["| option | default | |", "|---|---|---|", *rows])
    for sub in getattr(command, "commands", {}).values():
        yield from _render_command(sub, f"{name} {sub.name}", level + 1)


def _render_help(text: str | None) -> str:
    return (text or "").replace("\f", "").strip()


def _render_parameter(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        names = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        names = ", ".join(f"`{one}`" for one in (*parameter.opts, *parameter.secondary_opts))
    return f"| {_escape_cell(names)} | {_render_default(parameter)} | {_escape_cell(parameter.help or '')} |"


def _render_default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    default = parameter.default
    is_plain = isinstance(default, str | int | float | Path) and not isinstance(default, bool)
    return f"`{getattr(default, 'value', default)}`" if is_plain and default != "" else NO_DEFAULT_TEXT


def render_metrics_page() -> str:
    """Return the page of all metrics, from the registries that /metrics is written from."""
    parts = [
        "# Metrics",
        METRICS_INTRODUCTION,
        "## The sidecar",
        _render_metrics(build_sidecar_registry().collect()),
        "## Consumers that write to the lake",
        _render_metrics(build_consumer_registry().collect()),
    ]
    return "\n\n".join(parts) + "\n"


def _render_metrics(metrics: Iterable[Metric]) -> str:
    rows = [_render_metric(one) for one in sorted(metrics, key=lambda metric: metric.name)]
    return "\n".join(["| metric | type | labels | |", "|---|---|---|---|", *rows])


def _render_metric(metric: Metric) -> str:
    labels = sorted({label for sample in metric.samples for label in sample.labels} - {"le"})
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    words = ", ".join(f"`{label}`" for label in labels) or NO_DEFAULT_TEXT
    return f"| `{name}` | {metric.type} | {words} | {_escape_cell(metric.documentation)} |"


def render_api_page() -> str:
    """Return the page whose directives mkdocstrings replaces by signatures and docstrings."""
    parts = ["# Python API", "Generated from the signatures and docstrings of the public packages."]
    for module, title in API_MODULES.items():
        exported = _list_exported(module)
        if exported:
            parts += [f"## {title}: `{module}`", *(f"::: {module}.{name}" for name in exported)]
    return "\n\n".join(parts) + "\n"


def _list_exported(module: str) -> list[str]:
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return []  # a package that is not there yet
    return list(getattr(imported, "__all__", [ASSIGNOR_CLASS]))


def _escape_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
