"""Names that a package imports on first use."""

import importlib
import json
import subprocess
import sys
from typing import Final

import pytest

CLIENTS: Final = {"numpy", "kafka", "confluent_kafka", "aiokafka"}
LIBRARIES: Final = {
    *("pydantic", "pyarrow", "pyspark", "pandas", "rich", "typer", "yaml", "kubernetes", "grpc"),
    "opentelemetry",  # only once telemetry is on
}
SOLVERS: Final = {"ortools", "matplotlib"}
SIMULATION: Final = {"trimtab.assignor.analysis.simulation"}
LAZY_PACKAGES: Final = ("trimtab.assignor", "trimtab.consumer_sdk", "trimtab.consumer_sdk.lake")


@pytest.mark.parametrize("package", LAZY_PACKAGES)
def test_every_exported_name_is_found(package: str) -> None:
    """`__all__`, `dir` and the modules of the names agree; a wrong name is an AttributeError."""
    module = importlib.import_module(package)
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Missing'"):
        _ = module.Missing


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import trimtab.consumer_sdk", CLIENTS | LIBRARIES | SOLVERS | SIMULATION | {"asyncio", "ssl"}),
        ("import trimtab.assignor", CLIENTS | LIBRARIES | SOLVERS | SIMULATION),
        # a consumer needs numpy and kafka-python when it joins, not before
        (
            "from trimtab.consumer_sdk import Consumer",
            (CLIENTS | LIBRARIES | SOLVERS | SIMULATION) - {"confluent_kafka"},
        ),
        (
            (
                "from trimtab.consumer_sdk import Consumer; "
                "Consumer({'bootstrap.servers': 'localhost:9', 'group.id': 'g'}).close()"
            ),
            {"numpy", "kafka", "pyarrow", "pyspark", "rich", "typer", "yaml"},
        ),
        # its page simulates what other settings would have done
        ("import trimtab.cli.sidecar.run", SOLVERS | LIBRARIES - {"typer", "yaml"}),
    ],
)
def test_an_import_loads_only_what_it_needs(statement: str, unwanted: set[str]) -> None:
    """A process that only imports, or only reads without a group, does not pay for the rest."""
    code = f"import json, sys; {statement}; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert unwanted & set(json.loads(ran.stdout.splitlines()[-1])) == set()
