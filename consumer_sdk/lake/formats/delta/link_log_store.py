"""Delta's log store for local folders, compiled into the session's JVM.

Several processes may write into one Delta table only where the storage lets exactly one of them
have a commit's name. Delta's store for local paths does not (it renames, and a rename replaces), so
ours takes its place for the scheme `file`: see `LinkLogStore.java`. It is compiled by Janino, which
Spark itself compiles its queries with: no JDK is needed, and no binary is kept. Other schemes keep
the stores that Delta or the user's `spark.delta.logStore.*` give them.
"""

import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from trimtab.consumer_sdk.lake.spark import jvm_errors

LOG_STORE_CLASS: Final = "trimtab.LinkLogStore"
LOG_STORE_SETTING: Final = "spark.delta.logStore.file.impl"
_LOG_STORE_SOURCE: Final = "LinkLogStore.java"


def install_log_store(root: Any) -> None:
    """Let Delta use our store for `file:` paths, unless it was told to use another one.

    `root` is the JVM's packages; call it before the first Delta table is touched.
    """
    load_log_store(root)
    settings = root.org.apache.spark.SparkEnv.get().conf()
    if settings.getOption(LOG_STORE_SETTING).isEmpty():
        settings.set(LOG_STORE_SETTING, LOG_STORE_CLASS)


def load_log_store(root: Any) -> None:
    """Compile the class into the loader that Delta asks, unless it is there already."""
    loader = root.java.lang.Thread.currentThread().getContextClassLoader()
    if _is_class_loaded(loader):
        return
    compiler = compile_log_store(root, loader)
    with tempfile.TemporaryDirectory(prefix="trimtab-") as folder:
        file = Path(folder, *LOG_STORE_CLASS.split(".")).with_suffix(".class")
        file.parent.mkdir()
        file.write_bytes(bytes(compiler.getBytecodes()[LOG_STORE_CLASS]))
        loader.addURL(root.java.net.URL(f"{Path(folder).as_uri()}/"))
        loader.loadClass(LOG_STORE_CLASS)  # now, while the file is there


def compile_log_store(root: Any, loader: Any) -> Any:
    """Return Janino's compiler with the class in it; `loader` knows Delta's classes."""
    compiler = root.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook((files("trimtab.consumer_sdk.lake") / _LOG_STORE_SOURCE).read_text())
    return compiler


def _is_class_loaded(loader: Any) -> bool:
    try:
        loader.loadClass(LOG_STORE_CLASS)
    except jvm_errors.JVM_ERRORS:
        return False
    return True
