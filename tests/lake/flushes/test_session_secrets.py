"""Secrets of a Spark session reach the JVM only."""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security.secrets import is_secret, reject_secret_argument
from trimtab.consumer_sdk.lake.session import spark_session as session

PROGRAM = """
import json, os, sys
from pathlib import Path
from trimtab.consumer_sdk.lake.options.settings import SessionConfig
from trimtab.consumer_sdk.lake.session.spark_session import start_session
from trimtab.consumer_sdk.lake.spark.gateway import py4j_gateway, stop_session

given = json.loads(sys.stdin.read())
spark = start_session(SessionConfig(warehouse=sys.argv[1], spark=given))
conf = {name: spark.conf.get(name) for name in given}
jvm = py4j_gateway(spark)
options = jvm.jvm.java.lang.System.getProperty("a.password"), jvm.jvm.java.lang.System.getProperty("plain")
places = [Path(f"/proc/{jvm.proc.pid}/{name}").read_text() for name in ("cmdline", "environ")]
places += os.environ.values()
left = [str(file) for file in Path(os.environ["TMPDIR"]).iterdir() if "T" "OP" in file.read_text()]
stop_session(spark)
print(json.dumps([conf, options, places, left]))
"""


def test_no_setting_is_in_the_command_line_of_the_jvm(tmp_path: Path) -> None:
    """Every user of a machine can list command lines, and no list knows the names of all secrets."""
    given = {
        "spark.sql.catalog.other.credential": "id:TOP\\SECRET",
        "spark.hadoop.fs.s3a.secret.key": "TOP SECRET=too",
        "spark.hadoop.fs.azure.sas.container.account": "TOP?sv=1&sig=ä:\u0001 \t",
        "spark.hadoop.fs.gs.auth.service.account.private.key": "-----BEGIN TOP-----\nx\r\n=y\n",
        "spark.hadoop.fs.s3a.encryption.key": "  TOP with blanks  ",
        "spark.sql.catalog.trimtab.s3.sse.key": "TOP",
        "spark.sql.catalog.trimtab.header.X:=Api": "TOP",
        "spark.sql.catalog.other.uri": "jdbc:postgresql://user:TOP@catalog.test/db",
        "spark.driver.extraJavaOptions": "-Da.password='TOP \"of\" all' -Dplain=1",
    }
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    environ = os.environ | {"TMPDIR": str(tmp_path)}
    text = json.dumps(given)
    done = subprocess.run(command, check=True, input=text, capture_output=True, text=True, env=environ)
    conf, options, places, left = json.loads(done.stdout.splitlines()[-1])
    assert done.stderr == ""  # no start-up notes of the JVM
    assert conf == given
    assert options == ['TOP "of" all', "1"]
    assert [place for place in places if "TOP" in place] == []
    assert left == []  # the files that passed them are gone


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
        "lake.catalog.header.X-Api",
        "lake.catalog.s3.sse.key",
        "lake.catalog.s3.access-key-id",
        "lake.catalog.adls.connection-string.account",
        "lake.catalog.adls.auth.shared-key.account.key",
        "lake.catalog.jdbc.password",
        "lake.catalog.gcs.oauth2.token",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.azure.account.oauth2.client.secret",
        "spark.hadoop.fs.azure.account.key.lake",
        "spark.hadoop.fs.azure.sas.container.account",
        "spark.hadoop.fs.gs.auth.service.account.private.key",
        "spark.hadoop.fs.s3a.encryption.key",
        "lake.catalog.gcs.encryption-key",
        "lake.catalog.gcs.decryption-key",
        "spark.hadoop.fs.azure.encryption.encoded.client-provided-key",
    )
    assert [name for name in secret if not is_secret(name)] == []
    shown = ("trimtab.metrics.token.file", "ssl.key.location", "lake.catalog.uri", "group.id")
    assert [name for name in shown if is_secret(name)] == []


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        ("jdbc:postgresql://user:hush@catalog/db", True),
        ("jdbc:postgresql://catalog/db?user=lake&password=hush", True),
        ("jdbc:postgresql://catalog/db?user=lake&password=${env:CATALOG_PASSWORD}", False),
        ("https://lake:${file:/run/secrets/catalog}@catalog", False),
        ("https://catalog:8181", False),
    ],
)
def test_an_address_with_a_password_is_no_argument(value: str, refused: bool) -> None:  # noqa: FBT001
    """Every user of the machine can list command lines; a reference to the secret may stand there."""
    with pytest.raises(SettingError, match="visible to other users") if refused else nullcontext():
        reject_secret_argument("--set", "lake.catalog.uri", value)


FAILING = """
import sys
from trimtab.consumer_sdk.errors import SparkSessionError
from trimtab.consumer_sdk.lake.options.settings import SessionConfig
from trimtab.consumer_sdk.lake.session.spark_session import start_session

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


def test_java_options_with_an_open_quote_are_named() -> None:
    """They are split before the JVM starts."""
    options = {"spark.driver.extraJavaOptions": "-Da='b"}
    with (
        pytest.raises(SettingError, match=r"spark\.driver\.extraJavaOptions: No closing quotation"),
        session._pass_settings_by_file(options),  # pyright: ignore[reportPrivateUsage] - without a JVM
    ):
        pass
