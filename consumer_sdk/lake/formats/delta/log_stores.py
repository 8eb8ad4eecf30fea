"""Delta's log stores for local folders and for S3, compiled into the session's JVM."""

import tempfile
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from trimtab.consumer_sdk.errors import UnusableStorageError
from trimtab.consumer_sdk.lake.spark import jvm_errors

LOG_STORE_CLASS: Final = "trimtab.LinkLogStore"
LOG_STORE_SETTING: Final = "spark.delta.logStore.file.impl"  # of the scheme `file` only
S3_LOG_STORE_CLASS: Final = "trimtab.PutLogStore"
S3_LOG_STORE_SETTINGS: Final = ("spark.delta.logStore.s3.impl", "spark.delta.logStore.s3a.impl")
_PROBE_NAME: Final = "_trimtab_conditional_put"  # an empty object, which stays
STAGED_COMMITS_FOLDER: Final = "_staged_commits"  # Delta makes it before the first commit


def install_log_store(root: Any, *, on_s3: bool = False) -> None:
    """Make LinkLogStore the store of `file:` paths unless another one is configured.

    With `on_s3`, PutLogStore also becomes that of S3.
    """
    # Concurrent writers need a storage that grants a commit's name to one of them. Delta's store for
    # local paths renames, and a rename replaces an existing file; ours links, which fails instead.
    _install(root, LOG_STORE_CLASS, LOG_STORE_SETTING)
    if on_s3:
        _install(root, S3_LOG_STORE_CLASS, *S3_LOG_STORE_SETTINGS)


def _install(root: Any, name: str, *names: str) -> None:
    load_log_store(root, name)
    settings = root.org.apache.spark.SparkEnv.get().conf()
    for setting in names:
        if settings.getOption(setting).isEmpty():
            settings.set(setting, name)


def load_log_store(root: Any, name: str = LOG_STORE_CLASS) -> None:
    """Compile a class into Delta's class loader, unless it is loaded."""
    loader = root.java.lang.Thread.currentThread().getContextClassLoader()
    if _is_class_loaded(loader, name):
        return
    compiler = compile_log_store(root, loader, name)
    with tempfile.TemporaryDirectory(prefix="trimtab-") as folder:
        file = Path(folder, *name.split(".")).with_suffix(".class")
        file.parent.mkdir()
        file.write_bytes(bytes(compiler.getBytecodes()[name]))
        loader.addURL(root.java.net.URL(f"{Path(folder).as_uri()}/"))
        loader.loadClass(name)  # while the folder exists


def compile_log_store(root: Any, loader: Any, name: str = LOG_STORE_CLASS) -> Any:
    """Return Janino's compiler holding a class; `loader` resolves Delta's classes."""
    compiler = root.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    # Janino is part of every Spark, which compiles its queries with it: no JDK is needed.
    folder = files("trimtab.consumer_sdk.lake.formats.delta")
    compiler.cook((folder / f"{name.rpartition('.')[2]}.java").read_text())
    return compiler


def check_conditional_puts(root: Any, warehouse: str, settings: Any) -> None:
    """Raise UnusableStorageError if S3 lets writers replace others' commits; `settings` are Hadoop's."""
    path = root.org.apache.hadoop.fs.Path(warehouse, _PROBE_NAME)
    name = f"spark.delta.logStore.{path.toUri().getScheme()}.impl"
    if str(root.org.apache.spark.SparkEnv.get().conf().get(name, "")) != S3_LOG_STORE_CLASS:
        return  # the user's choice
    loader = root.java.lang.Thread.currentThread().getContextClassLoader()
    constructor = loader.loadClass(S3_LOG_STORE_CLASS).getConstructors()[0]
    store = constructor.newInstance(root.java.util.List.of(settings).toArray())
    if not store.keepsFirst(path, settings):
        raise UnusableStorageError(
            "lake.warehouse: this store ignores If-None-Match, so that writers would replace each other's "
            f"commits: use a newer store, write Iceberg tables, or set a log store with a lock as {name} "
            "(Delta's S3DynamoDBLogStore)"
        )


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


def _is_class_loaded(loader: Any, name: str) -> bool:
    try:
        loader.loadClass(name)
    except jvm_errors.JVM_ERRORS:
        return False
    return True
