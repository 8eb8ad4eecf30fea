"""`make wheels`: the source distribution, a wheel for each Python, the bill of materials; each wheel is used.

1. The wheels are built from the source distribution, so it is complete.
2. auditwheel gives each the oldest manylinux tag that its symbols allow.
3. Each wheel is installed into an empty environment, without a compiler on PATH and without Spark, and used.

PYTHONS names versions, or paths of interpreters. The last line is
RESULT {"wheels": ..., "bare_install_s": ..., "sdk_import_ms": ...}: seconds of the slowest installation, and
milliseconds of `import trimtab.consumer_sdk`; `consumer_import_ms` is that of
`from trimtab.consumer_sdk import Consumer`.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Final

from wheels.bare_environment import install_wheel, measure_import_ms, use_wheel
from wheels.commands import BIN, ROOT, UV, find_python, run
from wheels.distributions import DIST, build_source_distribution, repair_wheel

BUILD: Final = ROOT / "build" / "wheels"
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")


def build_wheel(python: str) -> Path:
    """Build a wheel from the unpacked source distribution, with build tools checked by hash, and repair it.

    The wheels share what Cython makes, which is the same for every Python.
    """
    draft = BUILD / "draft"
    shutil.rmtree(draft, ignore_errors=True)
    pinned = ("--require-hashes", "--build-constraints", ROOT / "constraints.txt")
    flags = ("-q", "--system-certs", *pinned, "--wheel", "--python", python)
    run(UV, "build", *flags, "--out-dir", draft, BUILD / "source")
    (raw,) = draft.glob("*.whl")
    return repair_wheel(raw, BIN)


def write_bill_of_materials(environment: Path) -> int:
    """Write the packages of a bare installation as CycloneDX; return their number."""
    target = DIST / "trimtab.cdx.json"
    run(
        BIN / "cyclonedx-py",
        "environment",
        "--output-reproducible",
        "-o",
        target,
        environment / "bin" / "python",
    )
    return len(json.loads(target.read_text())["components"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the packages of a release and try each of them.")
    parser.add_argument("pythons", nargs="*", default=PYTHONS, help="versions, or paths of interpreters")
    parser.add_argument("--strict", action="store_true", help="fail if an interpreter is missing")
    options = parser.parse_args()
    requests = options.pythons
    found = {request: find_python(request) for request in requests}
    pythons = [python for python in found.values() if python is not None]
    missing = [request for request, python in found.items() if python is None]
    if not pythons or (missing and options.strict):
        sys.exit(f"Python {', '.join(missing)} is not installed; `.venv/bin/uv python install` brings it")
    shutil.rmtree(DIST, ignore_errors=True)
    sdist, bare = build_source_distribution(BUILD), BUILD / "bare"
    seconds: list[float] = []
    for python in pythons:
        wheel = build_wheel(python)
        seconds.append(install_wheel(python, wheel, bare))
        use_wheel(bare)
        line = f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, installed in {seconds[-1]:.1f} s"
        print(line, flush=True)  # noqa: T201 - how it goes
    result = {
        "wheels": len(seconds),
        "bare_install_s": round(max(seconds), 1),
        "sdk_import_ms": measure_import_ms(bare, "import trimtab.consumer_sdk"),
        "consumer_import_ms": measure_import_ms(bare, "from trimtab.consumer_sdk import Consumer"),
        "sdist_mb": round(sdist.stat().st_size / 1e6, 1),
        "bill_of_materials": write_bill_of_materials(bare),
        "pythons_missing": missing,
    }
    print(f"RESULT {json.dumps(result)}")  # noqa: T201 - the program's answer


if __name__ == "__main__":
    main()
