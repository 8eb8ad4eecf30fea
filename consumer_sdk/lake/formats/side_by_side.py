"""Calls that wait for a storage, side by side."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

PARALLEL_READS: Final = 8  # of files of one storage

T = TypeVar("T")
R = TypeVar("R")


def map_side_by_side(call: Callable[[T], R], items: Sequence[T], parallelism: int) -> list[R]:
    """Return what the calls return, in the order of the items; after an error no further call begins."""
    if min(len(items), parallelism) <= 1:
        return list(map(call, items))
    futures: list[Future[R]] = [Future() for _ in items]
    pending: SimpleQueue[tuple[Future[R], T]] = SimpleQueue()
    for pair in zip(futures, items, strict=True):
        pending.put(pair)

    def work() -> None:
        while (pair := _pop(pending)) is not None:
            future, item = pair
            try:
                future.set_result(call(item))
            except BaseException as error:  # noqa: BLE001 - the future raises it
                future.set_exception(error)
                _cancel_all(pending)

    # daemons, unlike ThreadPoolExecutor's: hanging storage must not block the exit
    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(len(items), parallelism))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = [future for future in futures if not future.cancelled() and future.exception() is not None]
    return [future.result() for future in failed or futures]


def _pop(pending: "SimpleQueue[tuple[Future[R], T]]") -> tuple["Future[R]", T] | None:
    try:
        return pending.get_nowait()
    except Empty:
        return None


def _cancel_all(pending: "SimpleQueue[tuple[Future[R], T]]") -> None:
    while (pair := _pop(pending)) is not None:
        pair[0].cancel()
