"""Custom resource definitions for a control plane."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, Final

import yaml
from kubernetes import client
from kubernetes.client.rest import ApiException

from cluster.workloads import Cluster

CONFLICT: Final = 409
SECONDS: Final = 120.0


def define(cluster: Cluster, files: Iterable[Path]) -> None:
    """Create the definitions in these files that are missing; return once they are served."""
    api = client.ApiextensionsV1Api(cluster.client)
    bodies = [yaml.safe_load(file.read_text()) for file in sorted(files)]
    for body in bodies:
        try:
            api.create_custom_resource_definition(body, _preload_content=False)
        except ApiException as error:
            if error.status != CONFLICT:
                raise
    for body in bodies:
        _awaited(partial(_served, client.CustomObjectsApi(cluster.client), body["spec"]), body)


def _awaited(holds: Any, body: dict[str, Any]) -> None:
    pause, deadline = Event(), monotonic() + SECONDS
    while not holds():
        if monotonic() > deadline:
            raise RuntimeError(f"{body['metadata']['name']} is not served after {SECONDS:g} s")
        pause.wait(0.2)


def _served(objects: client.CustomObjectsApi, spec: dict[str, Any]) -> bool:
    place = (spec["group"], spec["versions"][0]["name"], spec["names"]["plural"])
    try:
        objects.list_cluster_custom_object(*place)
    except ApiException:
        return False
    return True
