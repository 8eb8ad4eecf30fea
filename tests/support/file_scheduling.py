"""Distribution of test files that survives the crash of a worker.

pytest-xdist 3.8 waits for ever once `--dist loadfile` has replaced a worker (pytest-xdist #1323 and #1327):

1. It queues the crashed worker's completed files again. Nothing of them is left to run, so the worker that
   gets one never reports, and only a report leads to the next file.
2. A worker runs a test once it knows the one after it. The replacement waits if its only file has one test.
"""

from typing import Any

from xdist.scheduler import LoadFileScheduling


class FileScheduling(LoadFileScheduling):
    """`LoadFileScheduling` that ends when a worker has crashed; the crashed test runs once more."""

    def remove_node(self, node: Any) -> str | None:
        """Forget a worker, and queue the files that it has not completed."""
        files = self.assigned_work[node]
        for file in [name for name, tests in files.items() if all(tests.values())]:
            del files[file]
        return super().remove_node(node)

    def _reschedule(self, node: Any) -> None:
        super()._reschedule(node)
        if self._pending_of(self.assigned_work[node]) == 1:
            super()._reschedule(node)
