"""Delta's log store for local folders, compiled into the session's JVM."""

import tempfile
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from trimtab.consumer_sdk.lake.spark import jvm_errors

LOG_STORE_CLASS: Final = "trimtab.LinkLogStore"
LOG_STORE_SETTING: Final = "spark.delta.logStore.file.impl"  # of the scheme `file` only
STAGED_COMMITS_FOLDER: Final = "_staged_commits"  # Delta makes it before the first commit
_LOG_STORE_SOURCE: Final = "LinkLogStore.java"


def install_log_store(root: Any) -> None:
    """Make LinkLogStore the store of `file:` paths unless another one is configured."""
    # Concurrent writers need a storage that grants a commit's name to one of them. Delta's store for
    # local paths renames, and a rename replaces an existing file; ours links, which fails instead.
    load_log_store(root)
    settings = root.org.apache.spark.SparkEnv.get().conf()
    if settings.getOption(LOG_STORE_SETTING).isEmpty():
        settings.set(LOG_STORE_SETTING, LOG_STORE_CLASS)


def load_log_store(root: Any) -> None:
    """Compile the class into Delta's class loader, unless it is loaded."""
    loader = root.java.lang.Thread.currentThread().getContextClassLoader()
    if _is_class_loaded(loader):
        return
    compiler = compile_log_store(root, loader)
    with tempfile.TemporaryDirectory(prefix="trimtab-") as folder:
        file = Path(folder, *LOG_STORE_CLASS.split(".")).with_suffix(".class")
        file.parent.mkdir()
        file.write_bytes(bytes(compiler.getBytecodes()[LOG_STORE_CLASS]))
        loader.addURL(root.java.net.URL(f"{Path(folder).as_uri()}/"))
        loader.loadClass(LOG_STORE_CLASS)  # while the folder exists


def compile_log_store(root: Any, loader: Any) -> Any:
    """Return Janino's compiler holding the class; `loader` resolves Delta's classes."""
    compiler = root.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    # Janino is part of every Spark, which compiles its queries with it: no JDK is needed.
    folder = files("trimtab.consumer_sdk.lake.formats.delta")
    compiler.cook((folder / _LOG_STORE_SOURCE).read_text())
    return compiler


def remove_unfinished_log(folder: Path) -> None:
    """Remove a log folder that has no commit, such as a full disk or a killed writer leaves behind.

    A commit that another writer makes meanwhile stays; before it the writer fails, and retries.
    """
    with suppress(OSError):
        entries = list(folder.iterdir())
        if all(_belongs_to_creation(entry.name) for entry in entries):
            for entry in entries:
                entry.rmdir() if entry.is_dir() else entry.unlink(missing_ok=True)
        # removes no folder with a commit; Hadoop's delete looks first, and then takes all
        folder.rmdir()


def _belongs_to_creation(name: str) -> bool:
    return name == STAGED_COMMITS_FOLDER or (name.startswith(".") and name.endswith((".tmp", ".crc")))


def _is_class_loaded(loader: Any) -> bool:
    try:
        loader.loadClass(LOG_STORE_CLASS)
    except jvm_errors.JVM_ERRORS:
        return False
    return True
