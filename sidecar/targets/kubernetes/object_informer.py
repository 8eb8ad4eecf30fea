"""Objects of one kind in a namespace, kept current by the informer of the client library.

The library's informer lists and watches, resumes, and lists again after 410 Gone. What it lacks is
here: it takes model objects only, it reconnects without a pause, and logs each try with a stack.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event
from types import SimpleNamespace
from typing import Any, Final

from kubernetes.client.exceptions import ApiException
from kubernetes.informer import ERROR, SharedInformer

from trimtab.sidecar.targets.kubernetes.api_client import HTTP_NOT_FOUND

log = logging.getLogger("trimtab.sidecar")

RELIST_INTERVAL_S: Final = 300.0  # a watch ends by then, so that one whose connection hangs does, too
WATCH_SLACK_S: Final = 15.0  # for the server to end the watch itself
LIST_TIMEOUT_S: Final = 30.0
MAX_BACKOFF_S: Final = 30.0
HTTP_ERROR: Final = 400
HTTP_FORBIDDEN: Final = 403
HTTP_GONE: Final = 410
_SharedInformer: Final[Any] = SharedInformer  # the package has no type hints


@dataclass(frozen=True, slots=True)
class WatchedObjects:
    """What an informer's messages name."""

    plural: str
    namespace: str
    not_found: str = ""  # the message if the API server does not know the kind


def request_objects(method: Callable[..., Any], timeout: float, **options: Any) -> Any:
    """Return the response to a list or watch, unread; `timeout` seconds are to connect.

    Raises ApiException and urllib3's errors.
    """
    read_timeout = RELIST_INTERVAL_S + WATCH_SLACK_S if options.get("watch") else LIST_TIMEOUT_S
    response = method(**{**options, "_preload_content": False, "_request_timeout": (timeout, read_timeout)})
    if response.status >= HTTP_ERROR:
        raise ApiException(http_resp=response)
    return response


class ObjectInformer:
    """The objects of a namespace as plain JSON; `request` lists, or watches with `watch=True`."""

    def __init__(
        self,
        request: Callable[..., Any],
        watched: WatchedObjects,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        self._request = request
        self._watched = watched
        self._stopped = Event()
        self._wait = wait or self._stopped.wait
        self._failures = 0
        self._last_error = ""
        self._is_listed = False
        # it logs each try of an outage with a stack; `_log_error` logs an error once
        logging.getLogger("kubernetes.informer.informer").setLevel(logging.CRITICAL)
        self._informer = _SharedInformer(self._list, resync_period=RELIST_INTERVAL_S)
        self._informer.add_event_handler(ERROR, self._log_error)

    def start(self) -> None:
        """Start listing and watching in a thread."""
        self._informer.start()

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._informer.stop()

    def list_objects(self) -> tuple[Mapping[str, Any], ...] | None:
        """Return the objects as last known; None before the first list has been read."""
        return tuple(self._informer.cache.list()) if self._is_listed else None

    def _list(self, **options: Any) -> Any:
        """List, or watch with `watch=True`, for the informer.

        :rtype: object
        """
        is_watch = bool(options.get("watch"))
        # a watch begins once the cache holds the list
        self._is_listed = self._is_listed or is_watch
        try:
            response = self._request(**options)
            made = response if is_watch else _parse_list(response.data)
        except Exception as error:
            if isinstance(error, ApiException) and error.status == HTTP_GONE:
                raise
            self._failures += 1
            self._wait(min(MAX_BACKOFF_S, 2.0 ** min(self._failures, 10) / 2))
            raise
        self._failures, self._last_error = 0, ""
        return made

    def _log_error(self, error: Exception) -> None:
        text = self._explain_error(error)
        if text != self._last_error and not self._stopped.is_set():
            log.warning("%s; groups of objects known before are managed as they were", text)
        self._last_error = text

    def _explain_error(self, error: Exception) -> str:
        status = error.status if isinstance(error, ApiException) else None
        plural = self._watched.plural
        if status == HTTP_NOT_FOUND and self._watched.not_found:
            return self._watched.not_found
        if status == HTTP_FORBIDDEN:
            verbs = f"list and watch {plural} in namespace {self._watched.namespace}"
            return f"not allowed to {verbs}; add these verbs to the sidecar's role"
        return f"{plural} cannot be watched now: {type(error).__name__} {str(error).splitlines()[0][:200]}"


def _parse_list(data: bytes) -> Any:
    # the informer reads attributes, as of the library's models
    body = json.loads(data)
    metadata = SimpleNamespace(resource_version=body["metadata"]["resourceVersion"])
    return SimpleNamespace(items=body["items"], metadata=metadata)
