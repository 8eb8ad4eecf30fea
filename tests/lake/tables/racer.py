"""One of several processes that race for the names of commits, started by test_delta.

Arguments: the log store's class, the log's location, rounds, a file with a byte per racer, its number,
and settings of Hadoop as NAME=VALUE.
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

from trimtab.consumer_sdk.lake.formats.delta import log_stores
from trimtab.consumer_sdk.lake.formats.table_format import resolve_requirements
from trimtab.consumer_sdk.lake.options.settings import SessionConfig
from trimtab.consumer_sdk.lake.options.storage_config import StorageConfig, find_storage


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


def main(store: str, folder: str, rounds: int, board: str, number: int, *hadoop: str) -> None:
    config = SessionConfig(warehouse=folder, format="delta", storage=StorageConfig(find_storage(folder)))
    jars = resolve_requirements(config).fetch_jars()
    classpath = ":".join([*map(str, jars), f"{Path(pyspark.__file__).parent}/jars/*"])
    port = launch_gateway(classpath=classpath, die_on_exit=True, javaopts=["-Xmx256m"])
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    gateway.start_callback_server(CallbackServerParameters(port=0, daemonize=True))
    server, client = gateway.java_gateway_server, gateway.get_callback_server()
    server.resetCallbackClient(server.getCallbackClient().getAddress(), client.get_listening_port())
    root = gateway.jvm
    settings = root.org.apache.hadoop.conf.Configuration()
    for setting in hadoop:
        settings.set(*setting.split("=", 1))
    loader = root.java.lang.Thread.currentThread().getContextClassLoader()
    if store in (log_stores.LOG_STORE_CLASS, log_stores.S3_LOG_STORE_CLASS):
        loader = log_stores.compile_log_store(root, loader, store).getClassLoader()
    maker = loader.loadClass(store).getConstructors()[0]
    made = maker.newInstance(_array(gateway, settings))
    won = []
    with Path(board).open("r+b") as file, mmap.mmap(file.fileno(), 0) as places:
        for turn in range(rounds):
            target = root.org.apache.hadoop.fs.Path(f"{folder}/{turn:020}.json")
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
    store, folder, rounds, board, number, *hadoop = sys.argv[1:]
    main(store, folder, int(rounds), board, int(number), *hadoop)
