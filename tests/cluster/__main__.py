"""`python -m cluster FOLDER`: a control plane to try things on, until Ctrl-C."""

import signal
import sys
from pathlib import Path

from cluster.control_plane import ControlPlane
from cluster.kubelet import Kubelet


def main(folder: Path) -> None:
    plane = ControlPlane(folder)
    try:
        plane.start()
        kubelet = Kubelet(plane.kubeconfig, folder / "pods")
        kubelet.start()
        print(f"export KUBECONFIG={plane.kubeconfig.resolve()}", flush=True)  # noqa: T201
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
        kubelet.stop()
    finally:
        plane.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
