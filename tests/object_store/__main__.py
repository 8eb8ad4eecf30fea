"""Provides the programs: `python -m object_store`."""

from object_store import programs

print(f"versitygw: {programs.find_gateway()}", flush=True)  # noqa: T201
print(f"Iceberg's REST catalog: {len(programs.rest_server_jars())} JARs", flush=True)  # noqa: T201
