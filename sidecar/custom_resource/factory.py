"""Connects the custom resources: informer, source of groups, and writer of status and events."""

from contextlib import ExitStack
from dataclasses import dataclass

from trimtab.common.clock import Clock
from trimtab.sidecar.custom_resource.resource_api import ResourceInformer, ScalerResourceApi
from trimtab.sidecar.custom_resource.resource_source import ResourceSource
from trimtab.sidecar.custom_resource.status_writer import ResourceStatusWriter
from trimtab.sidecar.settings.group_list import GroupListSettings
from trimtab.sidecar.targets.kubernetes.api_client import resolve_namespace


@dataclass(frozen=True, slots=True)
class ScalerResources:
    """The parts of the process for custom resources."""

    source: ResourceSource
    status_writer: ResourceStatusWriter


def connect_scaler_resources(listed: GroupListSettings, clock: Clock, stack: ExitStack) -> ScalerResources:
    """Connect, start to watch, and register cleanup on `stack`. Raises SidecarSettingError."""
    process = listed.process
    namespace = listed.options.watch_namespace or resolve_namespace(process.kubeconfig)
    api = ScalerResourceApi(namespace, process.kubeconfig, process.timeout)
    stack.callback(api.close)
    informer = ResourceInformer(api.request_resources, namespace)
    stack.callback(informer.close)
    source = ResourceSource(listed, informer.list_resources)
    # the writer has a source of its own: sources are not shared between threads
    own = ResourceSource(listed, informer.list_resources)
    status_writer = ResourceStatusWriter(api, own.list_resource_entries, clock)
    stack.callback(status_writer.close)
    informer.start()
    return ScalerResources(source, status_writer)
