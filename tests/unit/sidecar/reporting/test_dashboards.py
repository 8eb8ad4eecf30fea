"""Dashboard and alerts use exported metrics and labels only."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import promql_parser as promql
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from docs_site.exported_metrics import build_consumer_registry, build_sidecar_registry

DEPLOY: Final = Path(__file__).parents[4] / "deploy"
DASHBOARD: Final = DEPLOY / "kustomize" / "components" / "monitoring" / "dashboard.json"
GRAFANA: Final = {"$__rate_interval": "5m", "$group": "lake"}
"""Variables that Grafana replaces."""


def sidecars(*, leading: bool = True) -> dict[str, set[str]]:
    """Return the names of all samples of a sidecar, and their labels."""
    return samples(build_sidecar_registry(leading=leading))


def exported() -> dict[str, set[str]]:
    """Return the samples of sidecars and of consumers."""
    return {**sidecars(), **samples(build_consumer_registry())}


def samples(registry: CollectorRegistry) -> dict[str, set[str]]:
    text = generate_latest(registry).decode()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def alerts() -> list[dict[str, Any]]:
    body = yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())
    return [rule for group in body["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    body = json.loads(DASHBOARD.read_text())
    return [panel for panel in body["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """Yield the expressions with their places."""
    for rule in alerts():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            text = target["expr"]
            for name, value in GRAFANA.items():
                text = text.replace(name, value)
            yield panel["title"], text


def used(text: str) -> tuple[set[str], set[str]]:
    """Return the metrics and labels of an expression. Raises ValueError."""
    names: set[str] = set()
    labels: set[str] = set()

    def visit(node: promql.Expr) -> None:
        if isinstance(node, promql.MatrixSelector):
            visit(node.vector_selector)
        if isinstance(node, promql.VectorSelector):
            names.add(str(node.name))
            labels.update(matcher.name for matcher in node.matchers.matchers)
        if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            labels.update(node.modifier.labels)

    promql.walk(promql.parse(text), visit)
    return names, labels


@pytest.mark.parametrize(("where", "text"), list(expressions()))
def test_expressions_use_exported_metrics(where: str, text: str) -> None:
    """Each expression parses, and its metrics and labels are exported."""
    have = exported()
    names, labels = used(text)
    assert names, where
    assert names <= have.keys(), where
    assert labels <= set().union(*(have[name] for name in names)), where


def test_variables_use_exported_labels() -> None:
    """The values of the dashboard's variables are labels of exported metrics; panels use its data source."""
    have = exported()
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    queries = [one["query"] for one in variables if one["type"] == "query"]
    found = [re.fullmatch(r"label_values\((\w+), (\w+)\)", query) for query in queries]
    assert found
    assert [one for one in found if one is None or one[2] not in have[one[1]]] == []
    assert {panel["datasource"]["uid"] for panel in panels()} == {"${datasource}"}


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: str(rule["alert"]))
def test_alerts_are_complete(rule: dict[str, Any]) -> None:
    """An alert has a severity, two sentences, and only labels of its result."""
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert sorted(rule["annotations"]) == ["description", "summary"]
    mentioned = re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values()))
    assert set(mentioned) <= used(rule["expr"])[1]


def test_every_metric_is_used() -> None:
    """The dashboard or an alert uses each metric, except those also shown in bytes."""
    shown = {family(name) for _, text in expressions() for name in used(text)[0]}
    in_records = {"trimtab_write_rate_records_per_second", "trimtab_backlog_records"}
    assert {family(name) for name in exported()} - shown == in_records


def test_standby_exports_no_group_metrics() -> None:
    """A standby exports nothing that is summed over sidecars; its state is exported, and alerted on."""
    its = {family(name) for name in sidecars(leading=False)}
    assert its == {"trimtab_is_leader", "trimtab_iteration_seconds"}
    by_alert = {rule["alert"]: used(rule["expr"])[0] for rule in alerts()}
    assert by_alert["TrimtabNoLeader"] == {"trimtab_is_leader"}
    assert by_alert["TrimtabSidecarAbsent"] == {"trimtab_is_leader"}


def family(sample: str) -> str:
    return re.sub(r"_(bucket|count|created|sum|total)$", "", sample)


def test_wrong_names_are_detected() -> None:
    """The collector finds names in functions, ranges and both sides of a comparison."""
    text = 'sum by (a) (rate(one_bucket{b="x"}[5m])) > on (a) max by (a) (two) and absent(three)'
    assert used(text) == ({"one_bucket", "two", "three"}, {"a", "b"})


def test_panels_do_not_overlap() -> None:
    """Ids are unique and panels do not overlap: Grafana would show only one."""
    every = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in every)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
