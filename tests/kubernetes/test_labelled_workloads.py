"""Labelled workloads on a real API server: their annotations are the settings of their group."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import pytest

from cluster.control_plane import ControlPlane
from cluster.manifests import chart, named
from cluster.scaler_resources import PARTITIONS, ManyGroupsSidecar
from cluster.workloads import Cluster
from trimtab.sidecar.custom_resource.factory import find_resource_entry
from trimtab.sidecar.custom_resource.labelled_workload import ANNOTATION_PREFIX

pytestmark = [pytest.mark.kubernetes, pytest.mark.broker]


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


LABEL: Final = "trimtab.io/scale"
SELECTOR: Final = f"{LABEL}=true"


@pytest.fixture
def labelled(
    bootstrap: str,
    group: str,
    topic: Callable[..., str],
    cluster: Cluster,
    plane: ControlPlane,
    tmp_path: Path,
) -> ManyGroupsSidecar:
    """A sidecar whose groups are labelled workloads, with the rights of the chart's role only."""
    role = named(chart({"workloadSelector": SELECTOR}))["Role", "trimtab-sidecar"]
    file = tmp_path / "kubeconfig"
    file.write_text(plane.config_for(cluster.account(f"sidecar-{group.lower()}", role["rules"])))
    made = topic(partitions=PARTITIONS)
    return ManyGroupsSidecar(bootstrap, group, made, file, workload_selector=SELECTOR)


def test_a_labelled_deployment_is_scaled_until_the_label_is_gone(
    cluster: Cluster, workload: Callable[..., str], labelled: ManyGroupsSidecar, eventually: Eventually
) -> None:
    """Its annotations are settings, and a change counts; without the label its replicas stay."""
    name, other = workload("deployment", 1), workload("deployment", 1)
    own = {"group": labelled.group, "topics": labelled.topic, "capacity": "10 kB/s", "max": "2"}
    settings: dict[str, str | None] = {f"{ANNOTATION_PREFIX}{key}": value for key, value in own.items()}
    cluster.annotate("deployment", other, settings)  # without the label it names no group

    def is_scaled_to(replicas: int) -> bool:
        labelled.produce()
        return cluster.replicas("deployment", name) == replicas

    with labelled.running() as manager:
        cluster.annotate("deployment", name, settings)
        cluster.label("deployment", name, {LABEL: "true"})
        eventually(lambda: is_scaled_to(2), 60)
        cluster.annotate("deployment", name, {f"{ANNOTATION_PREFIX}max": "3"})
        eventually(lambda: is_scaled_to(3), 60)
        assert "ScaledUp" in dict(cluster.events(name))
        check_found_by_commands(labelled, name)
        cluster.label("deployment", name, {LABEL: None})
        eventually(lambda: not manager.list_groups(), 60)
        assert cluster.replicas("deployment", name) == 3
        assert cluster.replicas("deployment", other) == 1


def check_found_by_commands(labelled: ManyGroupsSidecar, name: str) -> None:
    """Assert that commands find the group's workload with its settings."""
    entry = find_resource_entry(labelled.settings, labelled.group)
    assert entry is not None
    assert entry.entry.settings is not None
    assert (entry.entry.settings.workload, entry.entry.settings.max) == (f"deployment/{name}", 3)


def test_wrong_annotations_are_an_event_of_their_workload(
    cluster: Cluster, workload: Callable[..., str], labelled: ManyGroupsSidecar, eventually: Eventually
) -> None:
    """The event names the annotation, once; the other workload is managed, and so is the mended one."""
    wrong, nameless, good = workload("deployment", 1), workload("statefulset", 1), workload("statefulset", 1)
    kinds = {wrong: "deployment", nameless: "statefulset", good: "statefulset"}
    settings: dict[str, dict[str, str | None]] = {
        wrong: {"group": f"{labelled.group}-a", "capacity": "1 MB/s", "maximum": "9"},
        nameless: {"capacity": "1 MB/s"},
        good: {"group": labelled.group, "capacity": "1 MB/s", "schedule": SCHEDULE},
    }
    for name, own in settings.items():
        cluster.annotate(
            kinds[name], name, {f"{ANNOTATION_PREFIX}{key}": value for key, value in own.items()}
        )
        cluster.label(kinds[name], name, {LABEL: "true"})
    with labelled.running() as manager:
        eventually(lambda: manager.list_groups() == (labelled.group,), 60)
        eventually(lambda: "InvalidSettings" in dict(cluster.events(nameless)), 60)
        eventually(lambda: "InvalidSettings" in dict(cluster.events(wrong)), 60)
        assert "scaler.trimtab.io/group is missing" in dict(cluster.events(nameless))["InvalidSettings"]
        assert "'maximum' is not a setting" in dict(cluster.events(wrong))["InvalidSettings"]
        cluster.annotate("deployment", wrong, {f"{ANNOTATION_PREFIX}maximum": None})
        eventually(lambda: f"{labelled.group}-a" in manager.list_groups(), 60)
        assert [reason for reason, _ in cluster.events(wrong)].count("InvalidSettings") == 1


SCHEDULE: Final = '[{start: "0 8 * * *", end: "0 18 * * *", min: 1}]'
