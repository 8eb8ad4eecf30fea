"""The thread that sends the commits of a group of the new protocol (KIP-848)."""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread


class CommitThread:
    """Carries out jobs one by one; a daemon, since a commit to a silent coordinator has no timeout."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._ended = False
        self._thread = Thread(target=self._run, name="trimtab-commit", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> bool:
        """Carry out the job after the earlier ones; return False after `end`."""
        if not self._ended:
            self._jobs.put(job)
        return not self._ended

    def end(self, timeout: float) -> None:
        """Take no more jobs, and wait up to `timeout` seconds for those that it has taken."""
        self._ended = True
        self._jobs.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
