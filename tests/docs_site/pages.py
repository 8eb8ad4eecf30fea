"""The pages of the docs as they stand in the repository, and what they contain."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
OTHER_PAGES: Final = ("README.md", "CONTRIBUTING.md", "benchmarks/README.md", "tests/README.md")
SOURCE_URL: Final = "https://github.com/trimtab/trimtab/blob/main/"

LINK: Final = re.compile(r"(?<=\]\()(?P<target>[^)\s]+)(?P<title>\s+\"[^\"]*\")?(?=\))")
CODE: Final = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.DOTALL | re.MULTILINE)
IMAGE: Final = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<target>[^)\s]+)(?:\s+\"(?P<title>[^\"]*)\")?\)")


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A code block of a page."""

    page: str
    line: int  # of its first line in the page, from 1
    language: str  # "" if it is indented or states none
    title: str  # the file's name, if the block is a file
    text: str
    instruction: str  # of an HTML comment before it


def list_pages() -> list[Path]:
    """Return the pages that people write, for users and for contributors."""
    folders = (DOCS, ROOT / "designs")
    return [*map(ROOT.joinpath, OTHER_PAGES), *(page for one in folders for page in sorted(one.glob("*.md")))]


def list_code_blocks(page: Path) -> list[CodeBlock]:
    """Return the code blocks of a page, in their order; `<!-- test: stop NAME -->` is an empty block."""
    found: list[CodeBlock] = []
    instruction = ""
    for token in MarkdownIt("commonmark").parse(page.read_text()):
        if token.type == "html_block":
            instructions = re.findall(r"<!-- test: (.*?) -->", token.content)
            found += [_read_block(page, token, one) for one in instructions if one.startswith("stop ")]
            instruction = "".join(one for one in instructions if not one.startswith("stop "))
        elif token.type in {"fence", "code_block"}:
            found.append(_read_block(page, token, instruction))
            instruction = ""
    return found


def list_section_blocks(page: Path, heading: str) -> list[CodeBlock]:
    """Return the code blocks of a section of level two."""
    lines = page.read_text().splitlines()
    first = lines.index(f"## {heading}")
    following = (n for n in range(first + 1, len(lines)) if lines[n].startswith("## "))
    end = next(following, len(lines))
    return [block for block in list_code_blocks(page) if first < block.line <= end]


def map_prose(page: str, change: Callable[[str], str]) -> str:
    """Return the page with everything but its code changed."""
    parts = CODE.split(page)  # prose and code in turn
    return "".join(part if at % 2 else change(part) for at, part in enumerate(parts))


def _read_block(page: Path, token: Token, instruction: str) -> CodeBlock:
    language, _, rest = token.info.partition(" ")
    title = "".join(re.findall(r'title="([^"]*)"', rest))
    line = token.map[0] + 1 if token.map else 0
    text = "" if instruction.startswith("stop ") else token.content
    return CodeBlock(page.name, line, language, title, text, instruction)


def iterate_sections(page: Path) -> Iterator[tuple[str, str]]:
    """Yield heading and text of each section of level two, the text before the first one included."""
    for part in re.split(r"(?m)^(?=## )", page.read_text()):
        heading, _, text = part.partition("\n")
        yield heading.lstrip("# "), text
