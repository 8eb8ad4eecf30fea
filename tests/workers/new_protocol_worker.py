"""The worker of librdkafka_worker.py, in a group of the new protocol."""

import sys

from librdkafka_worker import run

if __name__ == "__main__":
    run({"group.protocol": "consumer"}, *sys.argv[1:])
