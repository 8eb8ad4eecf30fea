"""Sends orders to a process under test (see `worker`)."""

import socket
from pathlib import Path


class OrderSocket:
    """Client of one process's order socket."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def send(self, *words: str) -> bool:
        """Send an order; return whether it was received."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.settimeout(1.0)  # a frozen process with a full queue
            try:
                out.sendto(" ".join(words).encode(), str(self._path))
            except OSError:
                return False
        return True
