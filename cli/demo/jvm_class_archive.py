"""Class data sharing archive for Spark's JVM: halves the start of a worker's session.

Loading about 15,000 classes dominates the start of a Spark JVM.
"""

import hashlib
import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from trimtab.consumer_sdk.java.jars import cache_folder
from trimtab.consumer_sdk.java.java_runtime import require_java
from trimtab.consumer_sdk.lake.model.file_writers import SPARK_FILE_WRITER
from trimtab.consumer_sdk.lake.options.settings import SessionConfig
from trimtab.consumer_sdk.lake.session.factory import open_lake
from trimtab.consumer_sdk.lake.spark.gateway import end_jvm

# dumping and using an archive need the same options
SMALL_JVM_OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
ARCHIVE_TIMEOUT_S: Final = 600.0  # 15 s on an idle machine


def jvm_options(archive: Path | None) -> str:
    """Return the JVM options of a worker."""
    if archive is None:
        return SMALL_JVM_OPTIONS
    # auto: the JVM ignores an archive that does not match its Java or jars, which costs only time
    return f'{SMALL_JVM_OPTIONS} "-XX:SharedArchiveFile={archive}" -Xshare:auto'


def find_archive() -> Path | None:
    """Return the existing archive for this Java and this pyspark."""
    place = _archive_path()
    return place if place.exists() else None


def create_archive() -> Path | None:
    """Create the archive (about 170 MB in the cache); None if this Java does not support it."""
    place = _archive_path()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            draft = Path(folder) / place.name
            subprocess.run(  # noqa: S603 - our own module
                [sys.executable, "-m", __spec__.name, str(draft)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=ARCHIVE_TIMEOUT_S,
                check=True,
            )
            draft.rename(place)  # an interrupted dump leaves no archive
    except (OSError, subprocess.SubprocessError):
        return None
    return place


def _archive_path() -> Path:
    spark = distribution("pyspark")
    run = subprocess.run([require_java(), "-version"], capture_output=True, check=False)  # noqa: S603 - from require_java
    folder = Path(str(spark.locate_file("pyspark")))
    # The JVM compares the class path by name, and each JAR by its size and time of change: an archive made
    # from the same pyspark at the same place, before it was installed again, does not load.
    jars = [(jar.name, jar.stat()) for jar in sorted(folder.glob("jars/*.jar"))]
    known = [run.stderr.decode(), spark.version, str(folder), SMALL_JVM_OPTIONS]
    known += [f"{name} {status.st_size} {int(status.st_mtime)}" for name, status in jars]
    digest = hashlib.sha256("\0".join(known).encode()).hexdigest()[:12]
    return cache_folder() / "cds" / f"spark-{digest}.jsa"


def _dump_archive(file: str) -> None:
    """Run a worker's session in a JVM that archives its loaded classes at exit."""
    dump_option = f'"-XX:ArchiveClassesAtExit={file}"'  # quoted: the path may hold spaces
    with tempfile.TemporaryDirectory() as folder:
        spark = {
            "spark.master": "local[1]",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": f"{SMALL_JVM_OPTIONS} {dump_option}",
        }
        # warmed up, so that the archive holds the classes of a flush by Spark, too; those of either table
        # format come from another class loader, whose classes no archive holds
        config = SessionConfig(warehouse=folder, spark=spark, file_writer=SPARK_FILE_WRITER)
        open_lake(config, warm_up=True).close()
        end_jvm(ARCHIVE_TIMEOUT_S)  # it writes the archive at its exit, which would outlast this process


if __name__ == "__main__":
    if len(sys.argv) > 1:  # its own process: the archive is written when the JVM ends
        _dump_archive(*sys.argv[1:])
    elif find_archive() is None and create_archive() is None:
        sys.stderr.write("no class archive could be created: Spark's JVMs start at half the speed\n")
