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

CLASS: Final = "trimtab.LinkLogStore"
SETTING: Final = "spark.delta.logStore.file.impl"
_SOURCE: Final = "LinkLogStore.java"


def install(root: Any) -> None:
    """Let Delta use our store for `file:` paths, unless it was told to use another one.

    `root` is the JVM's packages; call it before the first Delta table is touched.
    """
    load(root)
    settings = root.org.apache.spark.SparkEnv.get().conf()
    if settings.getOption(SETTING).isEmpty():
        settings.set(SETTING, CLASS)


def load(root: Any) -> None:
    """Compile the class into the loader that Delta asks, unless it is there already."""
    loader = root.java.lang.Thread.currentThread().getContextClassLoader()
    if _known(loader):
        return
    compiler = compiled(root, loader)
    with tempfile.TemporaryDirectory(prefix="trimtab-") as folder:
        file = Path(folder, *CLASS.split(".")).with_suffix(".class")
        file.parent.mkdir()
        file.write_bytes(bytes(compiler.getBytecodes()[CLASS]))
        loader.addURL(root.java.net.URL(f"{Path(folder).as_uri()}/"))
        loader.loadClass(CLASS)  # now, while the file is there


def compiled(root: Any, loader: Any) -> Any:
    """Return Janino's compiler with the class in it; `loader` knows Delta's classes."""
    compiler = root.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook((files("trimtab.consumer_sdk.lake") / _SOURCE).read_text())
    return compiler


def _known(loader: Any) -> bool:
    try:
        loader.loadClass(CLASS)
    except jvm_errors.JvmError:
        return False
    return True
