"""Output of the Spark JVM, on our standard error: start-up lines are held back, later lines pass through."""

import os
import threading
from typing import Final

STDERR_FD: Final = 2
DRAIN_TIMEOUT_S: Final = 1.0
_CHUNK_BYTES: Final = 65536


class JvmOutput:
    """Pipe from the JVM's output to our standard error; give `write_fd` to the JVM."""

    def __init__(self) -> None:
        self._read_fd, self.write_fd = os.pipe()
        self._held: list[bytes] | None = []
        self._lock = threading.Lock()
        # a daemon: the JVM closes its end only after the interpreter has exited
        self._thread = threading.Thread(target=self._forward, name="trimtab-jvm-output", daemon=True)
        self._thread.start()

    def close_write_end(self) -> None:
        """Close our copy of the write end, so that the pipe ends with the JVM."""
        os.close(self.write_fd)

    def pass_through(self) -> None:
        """Drop the held lines; print later ones."""
        with self._lock:
            self._held = None

    def print_held(self) -> None:
        """Print the held lines and all later ones."""
        self._thread.join(DRAIN_TIMEOUT_S)  # for the last words of a JVM that has just ended
        with self._lock:
            held, self._held = self._held or [], None
        os.write(STDERR_FD, b"".join(held))

    def _forward(self) -> None:
        while chunk := os.read(self._read_fd, _CHUNK_BYTES):
            with self._lock:
                if self._held is not None:
                    self._held.append(chunk)
                    continue
            # not sys.stderr: its lock may be gone when the interpreter exits
            os.write(STDERR_FD, chunk)
        os.close(self._read_fd)
