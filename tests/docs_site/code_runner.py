"""Runs the code blocks of a page in an empty folder, as a reader would.

A block with a title is a file; `sh` blocks, and indented ones, are commands of bash, in which variables stay
that an earlier block exports; a `text` block is what the command before it prints, in which "…" stands for
anything and a number for any number. Comments before a block direct it:

    <!-- test: background NAME until "TEXT" -->   runs on in a terminal of its own; prints TEXT once it works
    <!-- test: stop NAME -->                      Ctrl-C in that terminal, which must end the program well
    <!-- test: eventually -->                     repeated until its output matches the next block
    <!-- test: broker -->                         starts the broker, which the test has started
    <!-- test: skip REASON -->                    not run
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Final

from docs_site.pages import CodeBlock

SHELL_LANGUAGES: Final = frozenset({"", "sh"})
COMMAND_TIMEOUT_S: Final = 300
CTRL_C_PRESSES: Final = 5
CTRL_C_WAIT_S: Final = 30
ENDED_BY_CTRL_C: Final = frozenset({0, 130, -signal.SIGINT, 143, -signal.SIGTERM})
EVENTUALLY_S: Final = 240


class DocsError(AssertionError):
    """A code block does not do what its page says."""


@dataclass
class PageRunner:
    """State of one page: its folder, its terminals, and the output of the last command."""

    folder: Path
    replacements: Mapping[str, str]  # the addresses of the docs, and those of the test
    _terminals: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _output: str = ""
    _exports: str = ""

    def run(self, blocks: Sequence[CodeBlock]) -> None:
        """Run the blocks in order. Raises DocsError for the first that fails."""
        following = [*blocks[1:], None]
        for block, after in zip(blocks, following, strict=True):
            self._run_block(block, after)

    def stop_all(self) -> None:
        """End the programs that a page left running."""
        for name in list(self._terminals):
            self._stop(name, block=None)

    def _run_block(self, block: CodeBlock, after: CodeBlock | None) -> None:
        word = block.instruction.partition(" ")[0]
        if word in {"skip", "broker"}:
            return
        if word == "stop":
            self._stop(block.instruction.split()[1], block)
        elif block.title:
            (self.folder / block.title).write_text(self._replace(block.text))
        elif word == "background":
            self._start(block)
        elif block.language == "text":
            self._compare(block)
        elif block.language in SHELL_LANGUAGES:
            self._run_command(block, after)
        else:
            raise DocsError(
                f"{_where(block)}: nothing says how to run this block; give it a title or skip it"
            )

    def _replace(self, text: str) -> str:
        for old, new in self.replacements.items():
            text = text.replace(old, new)
        return text

    def _read_commands(self, block: CodeBlock) -> str:
        """Return a block's commands behind the exports of the blocks before it."""
        commands, before = self._replace(block.text), self._exports
        exports = (line for line in commands.splitlines() if line.startswith("export "))
        self._exports += "".join(f"{line}\n" for line in exports)
        return before + commands

    def _run_command(self, block: CodeBlock, after: CodeBlock | None) -> None:
        commands, deadline = self._read_commands(block), monotonic() + EVENTUALLY_S
        while True:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", commands],
                cwd=self.folder,
                env=make_environment(),
                check=False,
                capture_output=True,
                text=True,
                timeout=COMMAND_TIMEOUT_S,
            )
            self._output = done.stdout + done.stderr
            is_as_told = done.returncode == 0 and (
                after is None or find_missing_line(after.text, self._output) is None
            )
            if block.instruction != "eventually" or is_as_told or monotonic() > deadline:
                break
            Event().wait(0.5)
        if done.returncode:
            raise DocsError(f"{_where(block)} exits with {done.returncode}:\n{block.text}\n{self._output}")

    def _compare(self, block: CodeBlock) -> None:
        missing = find_missing_line(self._replace(block.text), self._output)
        if missing is not None:
            raise DocsError(f"{_where(block)}: {missing!r} is not in the output:\n{self._output}")

    def _start(self, block: CodeBlock) -> None:
        name, _, rest = block.instruction.removeprefix("background ").partition(" ")
        text = rest.removeprefix("until ").strip('"')
        if block.language == "python":
            (self.folder / f"{name}.py").write_text(self._replace(block.text))
            command = f"python {name}.py"
        else:
            command = self._read_commands(block)
        log = self.folder / f".{name}.log"
        with log.open("wb") as output:
            self._terminals[name] = subprocess.Popen(
                # Ctrl-C reaches the program also where the test itself runs in the background
                ["env", "--default-signal=INT", "bash", "-c", command],
                cwd=self.folder,
                env=make_environment(),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a terminal of its own, so that Ctrl-C reaches the program
            )
        deadline = monotonic() + EVENTUALLY_S
        while text not in log.read_text(errors="replace"):
            if self._terminals[name].poll() is not None or monotonic() > deadline:
                raise DocsError(f"{_where(block)} did not print {text!r}:\n{log.read_text(errors='replace')}")
            Event().wait(0.1)
        self._output = log.read_text(errors="replace")

    def _stop(self, name: str, block: CodeBlock | None) -> None:
        process = self._terminals.pop(name)
        code = press_ctrl_c(process)
        if block is not None and code not in ENDED_BY_CTRL_C:
            log = (self.folder / f".{name}.log").read_text(errors="replace")
            raise DocsError(f"{_where(block)}: {name} ended with {code}:\n{log[-3000:]}")


def press_ctrl_c(process: subprocess.Popen[bytes]) -> int:
    """Interrupt a terminal's programs until they end; return the exit code, or that of SIGKILL at last."""
    # A loop of the shell goes on if its program ends by itself just as the signal comes.
    for _ in range(CTRL_C_PRESSES):
        if process.poll() is not None:
            return process.returncode
        os.killpg(process.pid, signal.SIGINT)
        try:
            return process.wait(CTRL_C_WAIT_S)
        except subprocess.TimeoutExpired:
            pass
    os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


@contextmanager
def running_page(folder: Path, replacements: Mapping[str, str]) -> Iterator[PageRunner]:
    """Provide a runner whose programs end with the context."""
    runner = PageRunner(folder, replacements)
    try:
        yield runner
    finally:
        runner.stop_all()


def make_environment() -> dict[str, str]:
    """Return the environment of a reader who has activated the virtual environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "COLUMNS": "160", "PYTHONUNBUFFERED": "1"}


def find_missing_line(expected: str, output: str) -> str | None:
    """Return the first line of the expected output that is not in the output, in order; None if all are."""
    printed = iter(output.splitlines())
    for line in expected.splitlines():
        pattern = re.compile(_make_pattern(line.strip()))
        if line.strip() != "…" and not any(pattern.search(one) for one in printed):
            return line
    return None


def _make_pattern(line: str) -> str:
    parts = re.split(r"(…|\d[\d.,]*|\s+)", line)
    return "".join(_make_part(part) for part in parts)


def _make_part(part: str) -> str:
    if part == "…":
        return ".*"
    if part.isspace():
        return r"\s+"
    return r"\d[\d.,]*" if part[:1].isdigit() else re.escape(part)


def _where(block: CodeBlock) -> str:
    return f"{block.page}:{block.line}"
