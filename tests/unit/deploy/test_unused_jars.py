"""What the consumer's image leaves out of Spark is there to be left out."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[3]
PATTERNS = ROOT / "deploy" / "unused-jars.txt"


def test_each_pattern_is_of_a_jar_that_spark_brings() -> None:
    """A new version of Spark with other names would fail the image's build; this tells it earlier."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    (folder,) = spec.submodule_search_locations or ()
    jars = Path(folder, "jars")
    patterns = [line for line in PATTERNS.read_text().splitlines() if not line.startswith("#")]
    assert patterns
    assert [pattern for pattern in patterns if not list(jars.glob(pattern))] == []


def test_the_list_reaches_the_build() -> None:
    """The image is built from the files of .dockerignore only."""
    assert "!deploy/unused-jars.txt" in (ROOT / ".dockerignore").read_text().splitlines()
    assert "/src/deploy/unused-jars.txt" in (ROOT / "deploy" / "Dockerfile").read_text()
