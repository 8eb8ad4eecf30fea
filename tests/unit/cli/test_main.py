"""The command itself: quick help, and one clear message for each failure."""

import json
import subprocess
import sys
from types import ModuleType
from typing import Any

import confluent_kafka
import kafka.errors
import pytest

from trimtab.cli import main as command
from trimtab.common.errors import PeerError, SettingError

HEAVY = {"numpy", "pyspark", "pyarrow", "kafka", "confluent_kafka", "matplotlib", "pydantic"}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace `trimtab heuristics` by a function."""

    def put(function: Any) -> None:
        module = ModuleType("trimtab.cli.heuristics.run")
        module.heuristics = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "trimtab.cli.heuristics.run", module)

    return put


def raising(error: BaseException) -> Any:
    def heuristics(_: object) -> None:
        raise error

    return heuristics


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`trimtab --help` lists each command and exits 0."""
    assert command.main(["--help"]) == 0
    output = capsys.readouterr().out
    assert [name for name in command.COMMANDS if f"│ {name} " not in output] == []


@pytest.mark.parametrize("name", sorted(command.COMMANDS))
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`trimtab COMMAND --help` shows an example of that command."""
    assert command.main([name, "--help"]) == 0
    assert f"trimtab {name}" in capsys.readouterr().out.partition("example:")[2]


def test_help_loads_nothing_heavy() -> None:
    """`--help` of the command and its subcommands loads no client, no Spark and no numpy."""
    code = (
        "import sys, json; from trimtab.cli.main import COMMANDS, main\n"
        "for words in [], *([name] for name in sorted(COMMANDS)):\n"
        "    main([*words, '--help'])\n"
        "    print('LOADED', json.dumps([words, sorted({m.partition('.')[0] for m in sys.modules})]))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = [line.partition("LOADED ")[2] for line in ran.stdout.splitlines() if line.startswith("LOADED ")]
    loaded = [json.loads(line) for line in lines]
    assert [words for words, _ in loaded] == [[], *([name] for name in sorted(command.COMMANDS))]
    assert HEAVY & set(loaded[0][1]) == set()
    # typer loads pydantic for a command's options
    assert [words for words, modules in loaded if (HEAVY - {"pydantic"}) & set(modules)] == []


def test_missing_package_breaks_only_its_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--help` works if the module of a command cannot be loaded."""
    monkeypatch.setitem(sys.modules, "trimtab.cli.tables.run", None)
    assert command.main(["--help"]) == 0
    assert "tables" in capsys.readouterr().out


def test_a_missing_extra_gives_its_pip_command(fake: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the optional package and the extra that installs it."""
    fake(raising(ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql")))
    assert command.main(["heuristics"]) == 1
    assert "pip install 'trimtab[lake]'" in capsys.readouterr().err


def test_nearest_command_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt command is a usage error that suggests the nearest name."""
    assert command.main(["brokr"]) == 2
    assert "Did you mean 'broker'?" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`trimtab --version` prints the version."""
    assert command.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("trimtab 0.")


@pytest.mark.parametrize(
    ("error", "code"), [(SettingError("no such thing"), 2), (PeerError("no such thing"), 1)]
)
def test_a_trimtab_error_is_one_message(
    fake: Any, capsys: pytest.CaptureFixture[str], error: Exception, code: int
) -> None:
    """A TrimtabError prints one message to standard error and sets its exit code."""
    fake(raising(error))
    assert command.main(["heuristics"]) == code
    assert capsys.readouterr() == ("", "trimtab: no such thing\n")


@pytest.mark.parametrize(
    "error",
    [
        confluent_kafka.KafkaException(confluent_kafka.KafkaError(-195)),
        kafka.errors.KafkaConnectionError("no brokers"),
    ],
)
def test_a_kafka_error_suggests_checks(
    fake: Any, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    """An error of a Kafka client becomes one line with the settings to check."""
    fake(raising(error))
    code = command.main(["heuristics"])
    (line,) = capsys.readouterr().err.splitlines()
    assert (code, line[:20], "Is the broker running" in line) == (1, "trimtab: Kafka fails", True)


def test_a_kafka_error_names_the_bootstrap_option(capsys: pytest.CaptureFixture[str]) -> None:
    """The message holds the address from the command line."""
    error = kafka.errors.KafkaConnectionError("no brokers")
    for words in (["plan", "--bootstrap", "there:9092"], ["plan", "--bootstrap=there:9092"]):
        assert "Kafka at there:9092 fails" in (command._explain_kafka_error(error, words) or "")
    assert capsys.readouterr().err == ""


def test_interrupt_is_quiet(fake: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C exits with 130 and prints nothing."""
    fake(raising(KeyboardInterrupt()))
    assert command.main(["heuristics"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_bug_is_not_hidden(fake: Any) -> None:
    """An unexpected error keeps its traceback."""
    fake(raising(ZeroDivisionError("a bug")))
    with pytest.raises(ZeroDivisionError):
        command.main(["heuristics"])


def test_module_runs_as_the_command() -> None:
    """`python -m trimtab.cli` is the same command."""
    ran = subprocess.run(
        [sys.executable, "-m", "trimtab.cli", "heuristics"], check=False, capture_output=True, text=True
    )
    assert (ran.returncode, "mbf" in ran.stdout.split()) == (0, True)
