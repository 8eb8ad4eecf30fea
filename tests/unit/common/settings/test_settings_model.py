"""The settings mechanism: names, checks, error texts, tables; and the tables in the docs."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from docs_site.settings_docs import DOCS, fill_tables
from trimtab.common.errors import SettingError
from trimtab.common.settings.settings_model import (
    ByteRate,
    ByteSize,
    Duration,
    SettingsModel,
    TopicGroups,
    TopicList,
    list_settings,
    render_settings_table,
    setting,
    validate_settings,
)


class Pair(SettingsModel):
    """A setting with a part."""

    in_: float = setting("One.", default=0.1)


class Example(SettingsModel, owner="an example", prefix="x.", separator="."):
    """A setting of each kind."""

    rate: ByteRate = setting("Needed.")
    max_age: Duration = setting("Age.", default=600.0, name="batch.max.age")
    size: ByteSize = setting("Size.", default=64_000_000)
    topics: TopicList = setting("Topics.", default=(), default_text="all topics")
    kind: Literal["a", "b"] = setting("Kind | of it.", default="a")
    groups: TopicGroups = setting("Groups.", default=(("a", "b"), ("c", "d")), example="groups")
    pair: Pair = setting("Pair.", default=Pair(), default_text="none", example="{in: 0.2}")
    login: dict[str, str | int] = setting("Login.", default_factory=dict, secret=True)

    def find_problems(self, given: Collection[str]) -> Iterator[str]:
        """Reject an age with kind b."""
        if self.kind == "b" and "batch.max.age" in given:
            yield "x.kind=b has no age"


GOOD: dict[str, Any] = {"x.rate": "2 MB/s"}


def test_values_are_parsed_by_their_written_names() -> None:
    """Names have prefix and separator or are overridden, values have units; secrets are not shown."""
    valid = validate_settings(
        Example, {**GOOD, "batch.max.age": "1 min", "x.topics": "a, b", "x.login": {"p": "hunter2"}}
    )
    assert (valid.rate, valid.max_age, valid.topics) == (2e6, 60.0, ("a", "b"))
    assert "hunter2" not in repr(valid)
    with pytest.raises(AttributeError):
        valid.rate = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"x.rat": 1}, "'x.rat' is not a setting of an example; did you mean 'x.rate'?"),
        ({"x.rate": "fast"}, "x.rate: 'fast' is not understood; write it like \"2.3 MB/s\""),
        ({"x.kind": "c"}, "x.kind: 'c' is not one of the choices; write 'a' or 'b'"),
        ({"x.pair": {"up": 1}}, "x.pair.up is not a part of x.pair; write {in: 0.2}"),
        ({"x.login": {"p": ["hunter2"]}}, "x.login.p: write text, a number, or true or false"),
        ({"x.kind": "b", "batch.max.age": 1}, "x.kind=b has no age"),
        ({"x.groups": "a,b; c"}, "x.groups: a group has two topics or more; write groups of topics, like [["),
        ({"x.groups": ["a", "b"]}, "x.groups: a group has two topics or more"),
        ({"x.groups": [["a", "b"], ["c", "a"]]}, "x.groups: 'a' is there twice; a topic belongs to one"),
        ({"x.groups": 7}, "x.groups: write groups"),
        ({"x.groups": [[{}, 3]]}, "x.groups.0.0: write text"),
        ({"x.topics": "a,,b", "x.size": "big"}, r"x.size: 'big' .*; x.topics: a name is empty"),
    ],
)
def test_errors_name_setting_and_remedy(given: dict[str, Any], text: str) -> None:
    """One error has all problems, and no secret."""
    with pytest.raises(SettingError) as caught:
        validate_settings(Example, {**GOOD, **given})
    assert text in str(caught.value) or re.search(text, str(caught.value))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("groups", ["a,b; c, d", ["a,b", "c,d"], [["a", "b"], ["c", "d"]]])
def test_groups_of_topics_have_short_forms(groups: Any) -> None:
    """A command line has them in one text, a file as lists."""
    assert validate_settings(Example, {**GOOD, "x.groups": groups}).groups == (("a", "b"), ("c", "d"))


def test_a_missing_setting_is_described() -> None:
    """The error has its description."""
    with pytest.raises(SettingError, match=r"x\.rate is missing; an example needs it: Needed\."):
        validate_settings(Example, {})


def test_the_table_has_names_defaults_and_descriptions() -> None:
    """Defaults are in their written form."""
    rows = render_settings_table(Example).splitlines()[2:]
    assert rows[:6] == [
        "| `x.rate` | required | Needed. |",
        "| `batch.max.age` | `10 min` | Age. |",
        "| `x.size` | `64 MB` | Size. |",
        "| `x.topics` | all topics | Topics. |",
        "| `x.kind` | `a` | Kind \\| of it. |",
        "| `x.groups` | `a,b; c,d` | Groups. |",
    ]
    assert [one.name for one in list_settings(Pair)] == ["in"]


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_the_docs_tables_are_the_models(page: Path) -> None:
    """`make docs` would change nothing."""
    assert fill_tables(page.read_text()) == page.read_text()
