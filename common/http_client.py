"""HTTP requests of our own: proxies as the environment has them, no redirects, bounded answers."""

import ssl
from collections.abc import Callable
from typing import Any
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
)


def build_http_opener(context: ssl.SSLContext) -> OpenerDirector:
    """Return an opener of http and https URLs; statuses other than 2xx raise `urllib.error.HTTPError`."""
    # urllib's default also follows redirects, which would pass a secret on, and opens files
    opener = OpenerDirector()
    handlers = HTTPHandler(), HTTPSHandler(context=context), HTTPDefaultErrorHandler(), HTTPErrorProcessor()
    for handler in (ProxyHandler(), *handlers):  # proxies of the environment, as libcurl
        opener.add_handler(handler)
    return opener


def read_bounded(response: Any, max_bytes: int, is_overdue: Callable[[], bool] = lambda: False) -> bytearray:
    """Return the body of an answer, or a part of it that is longer than `max_bytes`.

    A socket's timeout bounds the wait for each part, `is_overdue` that for all. Raises TimeoutError.
    """
    body = bytearray()
    # read1, as read() takes a chunk of size "-1" for everything that follows
    while len(body) <= max_bytes and (part := response.read1(max_bytes)):
        body += part
        if is_overdue():
            raise TimeoutError("the answer is not complete within the timeout")
    return body
