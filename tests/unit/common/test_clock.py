"""The clock of leases counts the time of a suspended machine."""

import subprocess
import sys
from textwrap import dedent

import pytest

SUSPENDED_S = 86_400
# A suspended machine as far as the clocks show it: CLOCK_BOOTTIME ahead of CLOCK_MONOTONIC.
SUSPENDED = ("unshare", "--user", "--map-root-user", "--time", "--boottime", str(SUSPENDED_S), "--fork")


def run_after_suspension(program: str) -> str:
    """Return the output of a program on a machine that was suspended for a day."""
    if subprocess.run([*SUSPENDED, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine allows no time namespaces")
    command = [*SUSPENDED, sys.executable, "-c", dedent(program)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_time_of_a_suspended_machine_counts() -> None:
    """The lease of a member, the sidecar's lease and every timeout end while the machine sleeps."""
    counted = run_after_suspension(
        """
        import time
        from trimtab.common.clock import SystemClock
        print(SystemClock().monotonic() - time.monotonic())
        """
    )
    assert float(counted) == pytest.approx(SUSPENDED_S, abs=1)


def test_heartbeats_are_timed_by_the_clock_of_the_lease() -> None:
    """A heartbeat sent before a suspension renews no lease after it."""
    age = run_after_suspension(
        """
        from kafka.coordinator.heartbeat import Heartbeat
        from trimtab.common.clock import SystemClock
        from trimtab.consumer_sdk.membership.classic.adaptive_heartbeat import AdaptiveHeartbeat
        heartbeat = AdaptiveHeartbeat(Heartbeat())
        heartbeat.sent_heartbeat()
        print(SystemClock().monotonic() - heartbeat.last_send)
        """
    )
    assert float(age) == pytest.approx(0, abs=5)
