"""Connects the Kubernetes objects that name groups: informers, source of groups, status writer."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from trimtab.common.clock import Clock
from trimtab.sidecar.custom_resource.labelled_workload import WORKLOAD_KINDS, parse_labelled_workload
from trimtab.sidecar.custom_resource.names import KIND
from trimtab.sidecar.custom_resource.resource_api import ScalerResourceApi
from trimtab.sidecar.custom_resource.resource_source import ResourceEntry, ResourceSource
from trimtab.sidecar.custom_resource.scaler_resource import ScalerResource, parse_resource
from trimtab.sidecar.custom_resource.status_writer import ResourceStatusWriter
from trimtab.sidecar.settings.group_list import GroupListOptions, GroupListSettings
from trimtab.sidecar.targets.kubernetes.api_client import resolve_namespace
from trimtab.sidecar.targets.kubernetes.object_informer import ObjectInformer

NO_SELECTOR: Final = ""


@dataclass(frozen=True, slots=True)
class ScalerResources:
    """The parts of the process for these objects."""

    source: ResourceSource
    status_writer: ResourceStatusWriter


def connect_scaler_resources(listed: GroupListSettings, clock: Clock, stack: ExitStack) -> ScalerResources:
    """Connect, start to watch, and register cleanup on `stack`. Raises SidecarSettingError."""
    api = open_resource_api(listed)
    stack.callback(api.close)
    informers = {
        kind: ObjectInformer(api.build_request(kind, selector), api.describe_objects(kind))
        for kind, selector in list_watched_kinds(listed.options).items()
    }
    for informer in informers.values():
        stack.callback(informer.close)
    list_resources = partial(_list_known_resources, informers)
    source = ResourceSource(listed, list_resources)
    # the writer has a source of its own: sources are not shared between threads
    own = ResourceSource(listed, list_resources)
    status_writer = ResourceStatusWriter(api, own.list_resource_entries, clock)
    stack.callback(status_writer.close)
    for informer in informers.values():
        informer.start()
    return ScalerResources(source, status_writer)


def find_resource_entry(listed: GroupListSettings, group: str) -> ResourceEntry | None:
    """Return the resource or workload that has a group, as of now; None if none names it.

    Raises SidecarSettingError without a server address, KubernetesUnavailableError,
    KubernetesRejectedError.
    """
    kinds = list_watched_kinds(listed.options)
    with closing(open_resource_api(listed)) as api:
        resources = [
            _parse_object(kind, body)
            for kind, selector in kinds.items()
            for body in api.list_objects(kind, selector)
        ]
    entries = ResourceSource(listed, lambda: resources).list_resource_entries() or ()
    named = [one for one in entries if one.resource.group == group]
    owners = [one for one in named if one.problem is None or one.problem.reason != "GroupConflict"]
    return next(iter(owners or named), None)


def open_resource_api(listed: GroupListSettings) -> ScalerResourceApi:
    """Return a connection for the watched namespace. Raises SidecarSettingError without a server address."""
    process = listed.process
    namespace = listed.options.watch_namespace or resolve_namespace(process.kubeconfig)
    return ScalerResourceApi(namespace, process.kubeconfig, process.timeout)


def list_watched_kinds(options: GroupListOptions) -> dict[str, str]:
    """Return the kinds of objects that name groups, each with the label selector."""
    kinds = {KIND: NO_SELECTOR} if options.custom_resources else {}
    if options.workload_selector is not None:
        kinds |= dict.fromkeys(WORKLOAD_KINDS, options.workload_selector)
    return kinds


def _list_known_resources(informers: Mapping[str, ObjectInformer]) -> Sequence[ScalerResource] | None:
    """Return the objects; None before any kind of them is known: one that is refused blocks no other."""
    known = {kind: informer.list_objects() for kind, informer in informers.items()}
    if all(bodies is None for bodies in known.values()):
        return None
    return tuple(_parse_object(kind, body) for kind, bodies in known.items() for body in bodies or ())


def _parse_object(kind: str, body: Mapping[str, Any]) -> ScalerResource:
    return parse_resource(body) if kind == KIND else parse_labelled_workload(kind, body)
