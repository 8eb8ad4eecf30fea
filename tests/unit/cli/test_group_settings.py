"""A command's own measuring window contradicts no setting of the sidecar's file."""

from pathlib import Path

from trimtab.cli.group_settings import load_group_settings
from trimtab.cli.settings_options import GroupOptions

FILE = """
bootstrap: localhost:9092
group: lake
capacity: 1 MB/s
interval: 500 ms
window: 2 s
scale-up-evaluation-window: 8 s
freshness-slo: p99-freshness 2 s
fallback: static
fallback-replicas: 2
fallback-after: 3
"""


def test_a_command_measures_by_its_own_window(tmp_path: Path) -> None:
    """`top` refused files whose times are valid together, but not beside its window of 10 s."""
    file = tmp_path / "sidecar.yaml"
    file.write_text(FILE)
    options = GroupOptions(config=file)
    settings, is_known = load_group_settings(options, {"window": 10.0, "interval": 2.0})
    assert (settings.window, settings.interval, settings.consumption_window, is_known) == (10, 2, 8, True)
    settings, _ = load_group_settings(options)
    assert (settings.window, settings.interval) == (2, 0.5)
