"""Finds the Java that Spark and the embedded broker run on, and checks its version first."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from trimtab.consumer_sdk.errors import JavaNotFoundError, UnsupportedJavaError

MIN_JAVA_VERSION: Final = 17
FIRST_UNSUPPORTED_JAVA: Final = (
    25  # the security manager is gone for good; Hadoop's client inside Spark calls it
)
_JAVA_VERSION_PATTERN: Final = re.compile(r'version "(?:1\.)?(\d+)')
_JAVA_VERSION_TIMEOUT_S: Final = 30


def require_java() -> Path:
    """Return the `java` of JAVA_HOME, else of PATH, of a version that works.

    Raises JavaNotFoundError where there is none or it does not run, UnsupportedJavaError for any other version.
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
        if not os.access(java, os.X_OK):
            raise JavaNotFoundError(f"JAVA_HOME is {home}, but there is no {java}")
        return java
    found = shutil.which("java")
    if found is None:
        raise JavaNotFoundError("no java: JAVA_HOME is not set and PATH has none")
    return Path(found)


def _read_java_version(java: Path) -> int:
    try:
        answer = subprocess.run(  # noqa: S603 - the path was found above, the arguments are fixed
            [java, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_JAVA_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaNotFoundError(f"{java} does not run ({error})") from error
    text = answer.stderr + answer.stdout
    match = _JAVA_VERSION_PATTERN.search(text)
    if match is None:
        raise JavaNotFoundError(f"{java} does not say its version, but: {text.strip()[:200]!r}")
    return int(match.group(1))
