"""The gateway to the session's JVM, and the private parts of PySpark that reach it."""

import sys
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from trimtab.consumer_sdk.lake.spark import jvm_errors


def py4j_gateway(spark: SparkSession) -> Any:
    """Return py4j's gateway to the session's JVM."""
    return private_attribute(spark.sparkContext, "_gateway")


def java_session(spark: SparkSession) -> Any:
    """Return the session as an object of the JVM."""
    return private_attribute(spark, "_jsparkSession")


def java_frame(frame: DataFrame) -> Any:
    """Return a frame as an object of the JVM."""
    return private_attribute(frame, "_jdf")


def java_packages(spark: SparkSession) -> Any:
    """Return the root of the JVM's packages."""
    return py4j_gateway(spark).jvm


def end_jvm(timeout_s: float) -> None:
    """End this process's JVM and wait until it is gone. Raises TimeoutExpired.

    Without it the JVM ends by itself soon after this process; no session can start afterwards.
    """
    jvm = private_attribute(SparkContext, "_gateway").proc
    jvm.stdin.close()  # the JVM reads it until it ends
    jvm.wait(timeout_s)


def stop_session(spark: SparkSession) -> None:
    """Stop a session; report a JVM that is gone on standard error."""
    try:
        spark.stop()
    except (Py4JError, OSError) as error:
        sys.stderr.write(f"the Spark session did not stop cleanly: {jvm_errors.MaskedError(error)}\n")


def private_attribute(owner: object, name: str) -> Any:
    """Return a private attribute of PySpark."""
    # pyspark has no public way to these: only this module and the start of the session use them
    return getattr(owner, name)
