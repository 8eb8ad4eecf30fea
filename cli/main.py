"""The `trimtab` command: runs a subcommand and prints an expected failure as one message."""

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer

from trimtab.cli.terminal import escape_control_characters
from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.errors import MissingExtraError

# the summaries of `trimtab --help`, which imports no subcommand
COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "demo": "Run producers, a scaled group and Iceberg tables, and prove exactly once.",
        "broker": "Run a real single-node Kafka on this machine.",
        "sidecar": "Scale a consumer group by load: measure, decide, scale.",
        "ingest": "Run one consumer that writes topics into lake tables, exactly once.",
        "redeliver": "Redeliver messages of a queue that were not settled in time.",
        "init": "Look at a live group, and write settings that steer it.",
        "plan": "Show what each heuristic would do with a live group now; changes nothing.",
        "top": "Show a live group: each consumer's partitions, load and state.",
        "explain": "Explain a group's replica count and placement.",
        "doctor": "Check everything around a group, and suggest remedies.",
        "measure-capacity": "Measure what one consumer sustains on this machine.",
        "record": "Record a live group's write rates into a file for simulate.",
        "simulate": "Replay a stream of write rates through heuristics.",
        "heuristics": "List the heuristics.",
        "dead-letter": "List records that could not be decoded, and resend them.",
        "tables": "Show lake tables and their offsets; compact, expire, verify them.",
    }
)

EXTRA_BY_PACKAGE: Final[Mapping[str, str]] = MappingProxyType(
    {"aiokafka": "aiokafka", "matplotlib": "plot"}
    | dict.fromkeys(("pyarrow", "pyspark"), "lake")
    | dict.fromkeys(("deltalake", "duckdb", "pandas", "pyiceberg"), "read")
    | dict.fromkeys(("fastavro", "google", "httpx2"), "registry")  # google.protobuf
)
EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT, as in a shell
HELP_EPILOG: Final = "`trimtab COMMAND --help` shows the options of a command, with examples."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0, 1 for a failure, 2 for a bad setting or usage."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        typer.main.get_command(build_app(_find_subcommand(words)))(args=words, prog_name="trimtab")
    except SystemExit as end:
        return _convert_exit_code(end.code)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        known = _explain_error(error, words)
        if known is None:
            raise
        return _print_error(*known)
    return 0


def _explain_error(error: Exception, words: Sequence[str]) -> tuple[str, int] | None:
    """Return message and exit code of an expected failure, None for a bug."""
    if isinstance(error, TrimtabError):
        return str(error), error.exit_code
    if isinstance(error, ModuleNotFoundError):
        return _explain_missing_package(error)
    message = _explain_kafka_error(error, words)
    return None if message is None else (message, 1)


def build_app(subcommand: str | None) -> typer.Typer:
    """Return the command with `subcommand` loaded and a placeholder for each other one."""
    app = typer.Typer(
        rich_markup_mode="markdown",
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # they show local variables, secrets among them
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=HELP_EPILOG,
    )
    app.callback()(_root_command)
    for name, summary in COMMANDS.items():
        # the others stay unloaded: --help is quick, and a missing package breaks only its own command
        found = _load_subcommand(name) if name == subcommand else _placeholder
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name, help=None if name == subcommand else summary)(found)
    return app


def _print_version(requested: bool) -> None:  # noqa: FBT001 - typer passes it by position
    if requested:
        typer.echo(f"trimtab {importlib.metadata.version('trimtab')}")
        raise typer.Exit


def _root_command(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Scale Kafka consumer groups by load, and write every record into the lake exactly once.

    For example:

        trimtab demo

        trimtab sidecar --bootstrap localhost:9092 --group billing --capacity "2.3 MB/s" --dry-run

        trimtab simulate --random-walk 15 --heuristic mbf --heuristic mwf
    """


def _placeholder() -> None: ...


def _find_subcommand(words: Sequence[str]) -> str | None:
    # during completion the command has no arguments; the shell's words are in the environment
    typed = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS") or ""
    first = next((word for word in [*words, *typed.split()[1:]] if not word.startswith("-")), None)
    return first if first in COMMANDS else None


def _load_subcommand(name: str) -> Callable[..., Any] | typer.Typer:
    package = name.replace("-", "_")
    # options.py is light; run.py then loads when the command runs, not for its --help
    if find_spec(f"trimtab.cli.{package}.options") is not None:
        options = importlib.import_module(f"trimtab.cli.{package}.options")
        if hasattr(options, "COMMAND"):
            return options.COMMAND  # type: ignore[no-any-return]
    command: Callable[..., Any] = getattr(importlib.import_module(f"trimtab.cli.{package}.run"), package)
    return command


def _explain_missing_package(error: ModuleNotFoundError) -> tuple[str, int] | None:
    package = (error.name or "").partition(".")[0]
    extra = EXTRA_BY_PACKAGE.get(package)
    if extra is None:
        return None  # a bug, which keeps its traceback
    missing = MissingExtraError(package, extra)
    return str(missing), missing.exit_code


def _explain_kafka_error(error: Exception, words: Sequence[str]) -> str | None:
    # by the module's name: importing three clients would take longer than most commands
    kind = type(error).__module__.partition(".")[0]
    if kind not in {"cimpl", "confluent_kafka", "kafka", "aiokafka"}:
        return None
    following = dict(pairwise(words))
    equals = [word.partition("=")[2] for word in words if word.startswith("--bootstrap=")]
    where = following.get("--bootstrap") or following.get("-b") or "".join(equals[:1])
    return (
        f"Kafka{f' at {where}' if where else ''} fails: {error or type(error).__name__}. "
        "Is the broker running, is its address right, and do security settings and rights fit?"
    )


def _print_error(message: str, code: int) -> int:
    # a line of the message that is not its first is indented: none looks like another message
    lines = map(escape_control_characters, message.split("\n"))
    typer.secho("\n  ".join(("trimtab: " + next(lines), *lines)), err=True, fg=typer.colors.RED)
    return code


def _convert_exit_code(code: object) -> int:
    if code is None:
        return 0
    return code if isinstance(code, int) else _print_error(str(code), 1)
