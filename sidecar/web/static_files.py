"""The page's static files, read once; they hold nothing of a group and need no token."""

from collections.abc import Callable
from functools import partial
from importlib.resources import files
from typing import Final

from trimtab.common.http_server import HTTP_OK, HttpResponse

CONTENT_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
FIRST_FILE: Final = "index.html"


def load_static_routes() -> dict[str, Callable[[], HttpResponse]]:
    """Return a route for each file: "/" for the first one, "/page/NAME" for the others."""
    folder = files("trimtab.sidecar.web").joinpath("static")
    named = sorted((file.name, file.read_bytes()) for file in folder.iterdir())
    return {
        "/" if name == FIRST_FILE else f"/page/{name}": partial(_respond_file, name, content)
        for name, content in named
    }


def _respond_file(name: str, content: bytes) -> HttpResponse:
    return HTTP_OK, CONTENT_TYPES[name.rpartition(".")[2]], content
