"""`python -m cluster FOLDER`: a control plane to try things on, until Ctrl-C or SIGTERM.

Signals are handled between two steps, so that processes that are still starting are stopped, too.
"""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from cluster.control_plane import ControlPlane
from cluster.kubelet import Kubelet
from trimtab.cli.signals import install_signal_waiter

LONG: Final = 3600.0


def main(folder: Path) -> None:
    wait = install_signal_waiter()
    with ExitStack() as stack:
        plane = ControlPlane(folder)
        stack.callback(plane.stop)
        plane.start()
        kubelet = Kubelet(plane.kubeconfig, folder / "pods")
        kubelet.start()
        stack.callback(kubelet.stop)
        print(f"export KUBECONFIG={plane.kubeconfig.resolve()}", flush=True)  # noqa: T201
        while not wait(LONG):
            pass


if __name__ == "__main__":
    if len(sys.argv) != 2 or Path(sys.argv[1], "log").exists():
        sys.exit("usage: python -m cluster FOLDER; the folder is new: a control plane keeps nothing")
    main(Path(sys.argv[1]))
