"""A network that can be cut: TCP proxies, each in front of one listener of the broker.

The broker advertises the proxies' ports, so a client that bootstraps here stays here. *Cut* stops the
bytes like a pulled cable: connections stay open, new ones are accepted and silent, and bytes in flight
arrive when the link is restored. *Reset* closes the open connections. One thread with an event loop
serves all links.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any, Final

HOST: Final = "127.0.0.1"
CHUNK: Final = 65_536


class Link:
    """One port and its target; used on the loop's thread only."""

    def __init__(self) -> None:
        self.port = 0
        self.target = 0  # 0: none
        self.cuts = 0  # faults that hold it cut
        self.whole = asyncio.Event()
        self.whole.set()
        self._open: set[asyncio.StreamWriter] = set()

    async def serve(self) -> None:
        server = await asyncio.start_server(self._accept, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        self.cuts += 1
        self.whole.clear()

    def restore(self) -> None:
        self.cuts -= 1
        if not self.cuts:
            self.whole.set()

    def reset(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.whole.wait()
        try:
            onward = await asyncio.open_connection(HOST, self.target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, onward[1]}
        try:
            await asyncio.gather(self._copy(reader, onward[1]), self._copy(onward[0], writer))
        finally:
            self._open -= {writer, onward[1]}

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self.whole.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


class Network:
    """Links; methods may be called from any thread."""

    def __init__(self, count: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()
        self._links = [self._do(_made()) for _ in range(count)]

    @property
    def ports(self) -> list[int]:
        """The port of each link."""
        return [link.port for link in self._links]

    def lead_to(self, first: int, targets: Sequence[int]) -> None:
        """Set the target port of new connections, of one link after the other."""
        for number, target in enumerate(targets, first):
            self._links[number].target = target

    def cut(self, number: int) -> None:
        """Stop the bytes of a link."""
        self._loop.call_soon_threadsafe(self._links[number].cut)

    def restore(self, number: int) -> None:
        """Undo one cut."""
        self._loop.call_soon_threadsafe(self._links[number].restore)

    def reset(self, number: int) -> None:
        """Close all connections of a link."""
        self._loop.call_soon_threadsafe(self._links[number].reset)

    def close(self) -> None:
        """Stop the thread and close everything."""
        self._do(_cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)


async def _made() -> Link:
    link = Link()
    await link.serve()
    return link


async def _cancel_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
