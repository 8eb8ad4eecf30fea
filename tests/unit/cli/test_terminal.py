"""What commands print of names that others chose."""

import logging
import unicodedata
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.cli.logs import OneLineFormatter
from trimtab.cli.output_formats import print_table
from trimtab.cli.plain_console import PlainConsole, plain_text
from trimtab.cli.terminal import escape_control_characters, print_line
from trimtab.cli.top.run import abbreviate_names

HOSTILE = ("worker[/eu]", "[prod] orders", "\x1b[2Jgone", "one\nERROR two", "a\u202eb", "[b]y", ":smile:")


@given(st.text())
def test_a_foreign_text_is_one_printable_line(text: str) -> None:
    """No control character, line break or lone surrogate is left; other text stays as it is."""
    shown = escape_control_characters(text)
    shown.encode("utf-8")  # raises for a lone surrogate
    assert shown.splitlines() in ([shown], [])
    assert not any(unicodedata.category(one) in {"Cc", "Zl", "Zp"} for one in shown)
    if text.isprintable():
        assert shown == text


@pytest.mark.parametrize("name", HOSTILE)
def test_names_reach_no_terminal_as_markup_or_control(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines, tables and texts show a hostile name whole, with its control characters as escapes."""
    shown = escape_control_characters(name)
    print_line(name)
    print_table(("name",), [(name,)])
    out = StringIO()
    console = PlainConsole(file=out, width=80, force_terminal=True, color_system=None)
    console.print(name)
    console.print(plain_text(name, "red"))
    printed = capsys.readouterr().out + out.getvalue()
    assert printed.count(shown) == 4
    assert name == shown or name not in printed


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_forges_no_line_of_the_log(name: str) -> None:
    """Each message is one line; a traceback follows in its own."""
    record = logging.LogRecord("trimtab", logging.INFO, "", 1, "member %s joined", (name,), None)
    line = OneLineFormatter("%(levelname).1s %(message)s").format(record)
    assert line == f"I member {escape_control_characters(name)} joined"
    assert len(line.splitlines()) == 1


def test_long_names_are_shortened_where_they_stay_different() -> None:
    """UUIDs keep their beginning and end; names that would look alike have a few more characters."""
    ids = ["3f2a91c0-6b1e-4c7e-9d53-0a8f1b2c9c1b", "77aa91c0-6b1e-4c7e-9d53-0a8f1b2c9c1c"]
    assert abbreviate_names(ids, 9) == ["3f2a…9c1b", "77aa…9c1c"]
    alike = ["worker-a-of-the-long-name", "worker-b-of-the-long-name"]
    assert abbreviate_names(alike, 9) == ["worker-a…e", "worker-b…e"]
    pods = [f"lake-7d9f6c-{n:05}-x2k9q" for n in (10, 20, 21)]
    assert abbreviate_names(pods, 9) == ["l…10-x2k9q", "l…20-x2k9q", "l…21-x2k9q"]
    assert abbreviate_names(["short"], 9) == ["short"]
