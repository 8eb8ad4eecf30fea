"""Finds the Java that Spark and the embedded broker run on, and checks its version first."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from trimtab.consumer_sdk.errors import NoJava, WrongJava

OLDEST: Final = 17
TOO_NEW: Final = 25  # the security manager is gone for good; Hadoop's client inside Spark calls it
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_SECONDS: Final = 30


def require_java() -> Path:
    """Return the `java` of JAVA_HOME, else of PATH, of a version that works.

    Raises NoJava where there is none or it does not run, WrongJava for any other version.
    """
    java = _find()
    version = _version(java)
    if not OLDEST <= version < TOO_NEW:
        raise WrongJava(java, version)
    return java


def _find() -> Path:
    home = os.environ.get("JAVA_HOME", "")
    if home:
        java = Path(home, "bin", "java")
        if not os.access(java, os.X_OK):
            raise NoJava(f"JAVA_HOME is {home}, but there is no {java}")
        return java
    found = shutil.which("java")
    if found is None:
        raise NoJava("no java: JAVA_HOME is not set and PATH has none")
    return Path(found)


def _version(java: Path) -> int:
    try:
        answer = subprocess.run(  # noqa: S603 - the path was found above, the arguments are fixed
            [java, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJava(f"{java} does not run ({error})") from error
    text = answer.stderr + answer.stdout
    match = _VERSION.search(text)
    if match is None:
        raise NoJava(f"{java} does not say its version, but: {text.strip()[:200]!r}")
    return int(match.group(1))
