"""One of several processes that race for the names of commits, started by test_delta.

Arguments: the log store's class, the folder, rounds, a file with a byte per racer, its number.
Prints one line: the rounds that it won.
"""

import json
import mmap
import os
import sys
from pathlib import Path
from typing import ClassVar

import pyspark
from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from trimtab.consumer_sdk.lake.formats.delta import link_log_store
from trimtab.consumer_sdk.lake.formats.table_format import resolve_requirements
from trimtab.consumer_sdk.lake.settings import SessionConfig


class Lines:
    """The one line of a commit, available when every racer is in the middle of its write."""

    class Java:
        implements: ClassVar = ["java.util.Iterator"]

    def __init__(self, places: mmap.mmap, number: int, turn: int) -> None:
        self.places, self.number, self.turn = places, number, turn
        self.left = True

    def hasNext(self) -> bool:  # noqa: N802 - Java's name
        return self.left

    def next(self) -> str:
        self.left = False
        self.places[self.number] = self.turn
        while min(self.places[:]) < self.turn:
            os.sched_yield()
        return f"racer {self.number}"


def main(store: str, folder: str, rounds: int, board: str, number: int) -> None:
    jars = [*resolve_requirements(SessionConfig(warehouse=folder, format="delta")).fetch_jars()]
    classpath = ":".join([*map(str, jars), f"{Path(pyspark.__file__).parent}/jars/*"])
    port = launch_gateway(classpath=classpath, die_on_exit=True, javaopts=["-Xmx256m"])
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    gateway.start_callback_server(CallbackServerParameters(port=0, daemonize=True))
    server, client = gateway.java_gateway_server, gateway.get_callback_server()
    server.resetCallbackClient(server.getCallbackClient().getAddress(), client.get_listening_port())
    root = gateway.jvm
    settings = root.org.apache.hadoop.conf.Configuration()
    loader = root.java.lang.Thread.currentThread().getContextClassLoader()
    if store == link_log_store.LOG_STORE_CLASS:
        loader = link_log_store.compile_log_store(root, loader).getClassLoader()
    maker = loader.loadClass(store).getConstructors()[0]
    made = maker.newInstance(_array(gateway, settings))
    won = []
    with Path(board).open("r+b") as file, mmap.mmap(file.fileno(), 0) as places:
        for turn in range(rounds):
            target = root.org.apache.hadoop.fs.Path(f"file:{folder}/{turn:020}.json")
            try:
                made.write(target, Lines(places, number, turn + 1), False, settings)  # noqa: FBT003 - Delta's signature
                won.append(turn)
            except Py4JJavaError as error:
                assert "FileAlreadyExists" in str(error.java_exception), error  # noqa: PT017
    gateway.shutdown()
    sys.stdout.write(json.dumps(won) + "\n")


def _array(gateway: JavaGateway, only: object) -> object:
    made = gateway.new_array(gateway.jvm.java.lang.Object, 1)
    made[0] = only
    return made


if __name__ == "__main__":
    store, folder, rounds, board, number = sys.argv[1:]
    main(store, folder, int(rounds), board, int(number))
