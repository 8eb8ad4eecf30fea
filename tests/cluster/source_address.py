"""Makes a process connect from the address in $POD_IP, as from a pod of its own."""

import subprocess
from pathlib import Path
from typing import Any, Final

from cluster.workloads import POD_IP

CODE: Final = """
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/socket.h>

int connect(int fd, const struct sockaddr *to, socklen_t size) {
    int (*original)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
    const char *address = getenv("POD_IP");
    struct sockaddr_in from = {.sin_family = AF_INET};
    if (address && to->sa_family == AF_INET && inet_pton(AF_INET, address, &from.sin_addr) == 1)
        bind(fd, (struct sockaddr *)&from, sizeof from);
    return original(fd, to, size);
}
"""


def build_environment(folder: Path) -> list[dict[str, Any]]:
    """Build the library in this folder; return the environment of a container that uses it."""
    library = folder / "source_address.so"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library), "-ldl"]
    subprocess.run(command, input=CODE.encode(), check=True)
    return [POD_IP, {"name": "LD_PRELOAD", "value": str(library)}]
