"""Spark work of the demo in a process of its own: the demo's memory stays free for the workers.

    python -m trimtab.cli.demo.spark_tasks archive FILE FORMAT
    python -m trimtab.cli.demo.spark_tasks query JSON

`archive` dumps a JVM's classes, `query` prints the stored partitions of tables as JSON.
"""

import json
import sys
import tempfile
from dataclasses import asdict

from trimtab.cli.demo.class_archive import SMALL_JVM_OPTIONS
from trimtab.cli.demo.proof import read_stored_partitions
from trimtab.consumer_sdk.lake.settings import SessionConfig
from trimtab.consumer_sdk.lake.writer.writer import open_lake


def archive(file: str, form: str) -> None:
    """Run a worker's session in a JVM that archives its loaded classes at exit."""
    dump_option = f'"-XX:ArchiveClassesAtExit={file}"'  # quoted: the path may hold spaces
    with tempfile.TemporaryDirectory() as folder:
        spark = {
            "spark.master": "local[1]",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": f"{SMALL_JVM_OPTIONS} {dump_option}",
        }
        # warmed up, so that the archive holds the classes of a flush, too
        open_lake(SessionConfig(warehouse=folder, spark=spark, format=form), warm_up=True).close()


def query(text: str) -> None:
    """Print topic, partition and counts of each stored partition as the last line.

    The text is JSON with the tables, their warehouse and format, and the JVM options `java`.
    """
    task = json.loads(text)
    spark = {"spark.master": "local[2]", "spark.driver.extraJavaOptions": task["java"]}
    lake = open_lake(SessionConfig(warehouse=task["warehouse"], spark=spark, format=task["format"]))
    stored = read_stored_partitions(lake, task["tables"])
    lake.close()
    rows = [(where.topic, where.partition, asdict(facts)) for where, facts in stored.items()]
    sys.stdout.write(json.dumps(rows) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "archive":
        archive(*sys.argv[2:])
    else:
        query(sys.argv[2])
