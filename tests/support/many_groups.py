"""A sidecar process that manages many groups."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml


class ManyGroupsSidecar:
    """A sidecar process with the groups of its file."""

    def __init__(self, folder: Path, body: dict[str, Any], *flags: str) -> None:
        folder.mkdir()
        self.config, self.state = folder / "sidecar.yaml", folder / "state"
        self.config.write_text(yaml.safe_dump({**body, "state-dir": str(self.state)}))
        self.log = folder / "log"
        command = [sys.executable, "-m", "trimtab.cli", "sidecar", "-c", str(self.config), *flags]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def get(self, path: str) -> str:
        """Return what the web server answers; empty before it has started."""
        file = self.state / "web"
        if not file.exists() or not file.read_text().strip():
            return ""
        with urlopen(f"{file.read_text().strip()}{path}", timeout=10) as response:  # noqa: S310 - its own page
            return str(response.read().decode())

    def groups(self) -> dict[str, dict[str, Any]]:
        """Return `/groups` by name."""
        text = self.get("/groups")
        return {one["group"]: one for one in json.loads(text)["groups"]} if text else {}

    def states(self) -> dict[str, str]:
        """Return the groups' states by name."""
        return {name: one["state"] for name, one in self.groups().items()}

    def stop(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(60)

    def count_iterations(self, group: str) -> float:
        """Return the group's iterations since the start."""
        pattern = rf'trimtab_iteration_seconds_count\{{group="{group}"\}} (\S+)'
        found = re.search(pattern, self.get("/metrics"))
        return float(found[1]) if found else 0.0

    def close(self) -> None:
        """Kill it, if it still runs."""
        if self.process.poll() is None:
            self.stop(signal.SIGKILL)
