"""Secrets of a Spark session reach the JVM only."""

import json
import subprocess
import sys
from pathlib import Path

from trimtab.common.kafka_security.secrets import is_secret

PROGRAM = """
import json, sys
from pathlib import Path
from trimtab.consumer_sdk.lake.settings import SessionConfig
from trimtab.consumer_sdk.lake.spark.session import py4j_gateway, start_session, stop_session

spark = start_session(SessionConfig(warehouse=sys.argv[1], spark=json.loads(sys.argv[2])))
conf = {name: spark.conf.get(name) for name in json.loads(sys.argv[2])}
process = py4j_gateway(spark).proc.pid
lines = [Path(f"/proc/{process}/cmdline").read_text()]
stop_session(spark)
print(json.dumps([conf, lines]))
"""


def test_secrets_are_not_in_the_command_line_of_the_jvm(tmp_path: Path) -> None:
    """Every user of a machine can list command lines; the session has the secrets all the same."""
    given = {
        "spark.sql.catalog.other.credential": "id:TOP\\SECRET",
        "spark.hadoop.fs.s3a.secret.key": "TOP SECRET=too",
        "spark.sql.catalog.other.uri": "http://catalog.test",
    }
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), json.dumps(given)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    conf, lines = json.loads(done.stdout.splitlines()[-1])
    assert done.stderr == ""  # no start-up notes of the JVM
    assert conf == given
    assert "http://catalog.test" in lines[0]
    assert not [line for line in lines if "TOP" in line]


def test_secrets_are_detected_by_name() -> None:
    """Secrets of catalogs, storage and Kafka; the path of a secret file is none."""
    secret = (
        "sasl.password",
        "ssl.key.pem",
        "sasl.oauthbearer.config",
        "lake.catalog.credential",
        "lake.catalog.token",
        "lake.catalog.s3.session-token",
        "lake.catalog.header.Authorization",
        "lake.catalog.adls.sas-token.account",
        "spark.hadoop.fs.azure.account.key.lake",
    )
    assert [name for name in secret if not is_secret(name)] == []
    shown = ("trimtab.metrics.token.file", "ssl.key.location", "lake.catalog.uri", "group.id")
    assert [name for name in shown if is_secret(name)] == []


FAILING = """
import sys
from trimtab.consumer_sdk.errors import SparkSessionError
from trimtab.consumer_sdk.lake.settings import SessionConfig
from trimtab.consumer_sdk.lake.spark.session import start_session

try:
    start_session(SessionConfig(sys.argv[1], spark={"spark.driver.memory": "not-a-size"}))
except SparkSessionError as error:
    print(error)
"""


def test_a_jvm_that_does_not_start_shows_its_output(tmp_path: Path) -> None:
    """Standard error has Java's output, and the error refers to it."""
    command = [sys.executable, "-c", FAILING, str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "the Spark session did not start" in done.stdout
    assert "not-a-size" in done.stderr
