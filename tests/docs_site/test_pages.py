"""Links, pictures, figures, spelling and commands of the docs are right; does not build the site."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest
import typer
import yaml
from typer.core import TyperGroup

from docs_site import json_docs
from docs_site.code_runner import SHELL_LANGUAGES
from docs_site.diagrams import is_current, list_diagrams
from docs_site.pages import CODE, DOCS, IMAGE, LINK, ROOT, iterate_sections, list_code_blocks, list_pages
from docs_site.reference import render_commands_page, render_metrics_page, render_settings_page
from trimtab.cli.main import COMMANDS, build_app

PAGES = list_pages()
GENERATED = {"settings.md", "commands.md", "metrics.md", "python-api.md"}
COMMAND = re.compile(r"`?(make [a-z-]+|python -m benchmarks\.[\w.]+|(?:\.venv/bin/)?trimtab [a-z-]+)")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


@cache
def list_anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    written = re.findall(r'<a (?:id|name)="([^"]+)">', page.read_text())
    return frozenset([*written, *(re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in plain)])


def find_broken_links(page: Path) -> Iterator[str]:
    for link in LINK.finditer(CODE.sub("", page.read_text())):
        target, _, anchor = link["target"].partition("#")
        if re.match(r"[a-z]+:", target) or target in GENERATED:
            continue
        path = (page.parent / target) if target else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in list_anchors(path)):
            yield link["target"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_and_anchors_exist(page: Path) -> None:
    """Each link of a page leads to a file, and to a heading in it."""
    assert list(find_broken_links(page)) == []


def test_pages_named_in_the_code_exist() -> None:
    """Error messages, comments and manifests name pages that exist."""
    sources = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)
    named = {
        (name, page)
        for name in sources.stdout.splitlines()
        if name.endswith((".py", ".yaml", ".tpl", "Makefile", ".java")) and (ROOT / name).is_file()
        for page in re.findall(r"\bdocs/([\w-]+\.(?:md|png|svg))", (ROOT / name).read_text())
    }
    assert {
        (name, page) for name, page in named if not (DOCS / page).exists() and page not in GENERATED
    } == set()


def test_every_picture_names_its_command() -> None:
    """The title of a picture is the command that makes it, which exists."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wrong = []
    for page in PAGES:
        for image in IMAGE.finditer(CODE.sub("", page.read_text())):
            words = (image["title"] or "").split()
            is_target = words[:1] == ["make"] and words[1] in targets
            file = ROOT / f"{''.join(words[2:]).replace('.', '/')}.py"
            is_program = words[:2] == ["python", "-m"] and file.is_file()
            wrong += [] if is_target or is_program else [(page.name, image["target"], image["title"])]
    assert wrong == []


def test_every_result_names_its_command() -> None:
    """A section with a RESULT line, and each one with figures in the benchmarks, names the command."""
    nameless = [
        (page.name, heading)
        for page in PAGES
        for heading, text in iterate_sections(page)
        if ("RESULT {" in text or (page.name == "benchmarks.md" and re.search(r"\d [MG]B/s|\d ms\b", text)))
        and not COMMAND.search(heading + text)
    ]
    assert nameless == []


@pytest.mark.parametrize("source", list_diagrams(), ids=lambda source: source.stem)
def test_diagrams_are_drawn_from_their_sources(source: Path) -> None:
    """A committed diagram is that of its source; `make site` draws it again."""
    assert is_current(source)


def test_json_is_documented_as_it_is_decoded() -> None:
    """The table of the page is the decoder's; `python -m docs_site.json_docs` in tests/ writes it again."""
    assert json_docs.fill_page(json_docs.PAGE.read_text()) == json_docs.PAGE.read_text()


def test_spelling() -> None:
    """codespell knows no misspelled word in the docs, except those of docs/words.txt."""
    program = Path(sys.executable).with_name("codespell")
    command = [
        program,
        "--ignore-words",
        str(DOCS / "words.txt"),
        *map(str, PAGES),
        *map(str, DOCS.glob("*.d2")),
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stdout + done.stderr == ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_are_valid(page: Path) -> None:
    """Python blocks compile, YAML blocks load."""
    for block in list_code_blocks(page):
        if block.language == "python":
            compile(block.text, f"{block.page}:{block.line}", "exec", flags=0x2000)  # top-level await
        if block.language == "yaml":
            list(yaml.safe_load_all(block.text))


@cache
def list_options(*words: str) -> frozenset[str]:
    """Return the options of a command, or of one of its subcommands."""
    group = typer.main.get_command(build_app(words[0]))
    assert isinstance(group, TyperGroup)
    command = group.commands[words[0]]
    command = getattr(command, "commands", {}).get(words[1], command) if words[1:] else command
    options = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    return frozenset(options | {"--help", "-h"})


def iterate_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each `trimtab` command in a block of shell commands."""
    for line in text.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue  # a line of a program between quotes
        for at, word in enumerate(words[:-1]):
            if word in {"trimtab", ".venv/bin/trimtab"} and words[at + 1] in COMMANDS:
                yield list(
                    takewhile(lambda one: one not in {"|", "||", "&&", ";", ">", "--"}, words[at + 1 :])
                )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_have_the_options_that_pages_use(page: Path) -> None:
    """Each option of a `trimtab` command in a code block exists."""
    unknown = [
        (block.line, words[0], option)
        for block in list_code_blocks(page)
        if block.language in SHELL_LANGUAGES
        for words in iterate_commands(block.text)
        for option in (word.partition("=")[0] for word in words if re.fullmatch(r"--?[a-z][\w=.-]*", word))
        if option not in list_options(*words[:2])
    ]
    assert unknown == []


def test_the_reference_is_complete() -> None:
    """The generated pages have all commands, all metrics of the dashboard, and settings of each program."""
    commands = render_commands_page()
    assert [name for name in COMMANDS if f"## `trimtab {name}`" not in commands] == []
    dashboard = (ROOT / "deploy" / "kustomize" / "components" / "monitoring" / "dashboard.json").read_text()
    metrics = render_metrics_page()
    used = {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\btrimtab_\w+", dashboard)}
    assert {name for name in used if f"`{name}`" not in metrics} == set()
    settings = render_settings_page()
    shown = (
        "lake.warehouse",
        "trimtab.capacity",
        "scale-up-policies",
        "trimtab.queue.max.deliveries",
        "topics",
    )
    assert [name for name in shown if f"| `{name}` |" not in settings] == []
