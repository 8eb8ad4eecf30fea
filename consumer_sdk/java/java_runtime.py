"""Finds the Java runtime of Spark and the embedded broker, and checks its version."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from trimtab.consumer_sdk.errors import JavaNotFoundError, UnsupportedJavaError

MIN_JAVA_VERSION: Final = 17
# Java 25 has no security manager, which Hadoop's client inside Spark calls.
FIRST_UNSUPPORTED_JAVA: Final = 25
_JAVA_VERSION_PATTERN: Final = re.compile(r'version "(?:1\.)?(\d+)')
_JAVA_VERSION_TIMEOUT_S: Final = 30


def require_java() -> Path:
    """Return the `java` of JAVA_HOME or else of PATH, if its version is supported.

    Raises JavaNotFoundError if there is none or it does not run, and UnsupportedJavaError.
    """
    java = _find_java()
    version = _read_java_version(java)
    if not MIN_JAVA_VERSION <= version < FIRST_UNSUPPORTED_JAVA:
        raise UnsupportedJavaError(java, version)
    return java


def _find_java() -> Path:
    home = os.environ.get("JAVA_HOME", "")
    if home:
        java = Path(home, "bin", "java")
        # A wrong JAVA_HOME is an error: Spark would use it although PATH has a Java.
        if not os.access(java, os.X_OK):
            raise JavaNotFoundError(f"JAVA_HOME is {home}, but there is no {java}")
        return java
    path = shutil.which("java")
    if path is None:
        raise JavaNotFoundError("no java: JAVA_HOME is not set and PATH has none")
    return Path(path)


def _read_java_version(java: Path) -> int:
    command = [str(java), "-version"]
    timeout = _JAVA_VERSION_TIMEOUT_S
    try:
        result = subprocess.run(command, capture_output=True, timeout=timeout, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaNotFoundError(f"{java} does not run ({error})") from error
    # java -version prints to standard error.
    text = (result.stderr + result.stdout).decode(errors="replace")
    match = _JAVA_VERSION_PATTERN.search(text)
    if match is None:
        raise JavaNotFoundError(f"{java} printed no version, but: {text.strip()[:200]!r}")
    return int(match.group(1))
