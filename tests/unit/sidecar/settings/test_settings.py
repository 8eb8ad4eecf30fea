"""Settings: units, precedence of flags, and errors that name the setting."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from trimtab.common.errors import SettingError
from trimtab.sidecar.errors import SidecarSettingError
from trimtab.sidecar.kafka.broker_client import BrokerClient
from trimtab.sidecar.model.catch_up_policy import CatchUpPolicy
from trimtab.sidecar.model.hpa_behavior import Direction, ScalingPolicy, ScalingRules, SelectPolicy
from trimtab.sidecar.settings.settings import load_settings

GOOD: dict[str, Any] = {"bootstrap": "b:9092", "group": "g", "capacity": "2.3 MB/s"}
FRESH = "p99-freshness 40 s"
PERIOD = {"start": "0 8 * * 1-5", "end": "0 18 * * 1-5", "timezone": "Europe/Rome"}
KEDA = {"target": "keda", "workload": "deployment/lake"}
PROCESS = {"target": "process", "worker-command": ["w", "{instance}"], "state-dir": "s"}


def test_units_and_defaults() -> None:
    """Rates and durations have units, and every setting but the required ones has a default."""
    settings = load_settings(None, {**GOOD, "window": "1 min", "interval": "500 ms", "topics": "a, b"})
    assert (settings.capacity, settings.window, settings.interval) == (2.3e6, 60.0, 0.5)
    assert settings.topics == ("a", "b")
    assert (settings.min, settings.max, settings.target) == (1, 10, "none")
    assert settings.autoscaling_policy.placement.consolidate


def test_topic_pattern_is_not_split() -> None:
    """A pattern may contain commas."""
    assert load_settings(None, {**GOOD, "topics": "^a{1,2}$"}).topics == ("^a{1,2}$",)


def test_flags_override_the_file(tmp_path: Path) -> None:
    """Other values of the file stay; librdkafka's settings are merged."""
    file = tmp_path / "sidecar.yaml"
    file.write_text("bootstrap: file:1\ngroup: g\ncapacity: 1 MB/s\nmax: 3\nkafka: {client.rack: me, a: 1}\n")
    settings = load_settings(file, {"bootstrap": "flag:1", "max": None, "kafka": {"a": 2}})
    assert (settings.bootstrap, settings.max) == ("flag:1", 3)
    assert settings.kafka == {"client.rack": "me", "a": 2}


def test_move_cost_becomes_a_weight() -> None:
    """15 s of a consumer, with changes 30 s apart, are half a consumer."""
    settings = load_settings(None, {**GOOD, "move-cost": "15 s", "cooldown": "30 s"})
    assert settings.autoscaling_policy.placement.heuristic == "steady:0.5"
    assert settings.move_cost_weight == 0.5
    assert (
        load_settings(None, {**GOOD, "heuristic": "steady:calm"}).move_cost_weight > settings.move_cost_weight
    )


def test_co_partitioned_topics_are_placed_by() -> None:
    """The decisions' policy has them."""
    settings = load_settings(None, {**GOOD, "co-partitioned": "orders,payments"})
    assert settings.autoscaling_policy.placement.co_partitioned == (("orders", "payments"),)


def test_policies_and_tolerances_have_short_forms() -> None:
    """A number is a policy per iteration; the full forms are the HPA's."""
    short = load_settings(None, {**GOOD, "scale-up-policies": 2, "tolerance": 0.2}).autoscaling_policy
    assert short.scale_up == ScalingRules((ScalingPolicy(2),), tolerance=0.2)
    assert short.scale_down == ScalingRules((ScalingPolicy(1),), stabilization_window=120.0, tolerance=0.2)
    percent = {"type": "percent", "value": 100, "period": "1 min"}
    listed = load_settings(
        None, {**GOOD, "scale-up-policies": [percent], "tolerance": {"scale-up": 0.05}}
    ).autoscaling_policy
    assert listed.scale_up == ScalingRules((ScalingPolicy(100, 60.0, is_percent=True),), tolerance=0.05)
    assert listed.scale_down.tolerance == 0.1
    whole = {"select": "min", "policies": [percent]}
    assert (
        load_settings(
            None, {**GOOD, "scale-down-policies": whole}
        ).autoscaling_policy.scale_down.select_policy
        is SelectPolicy.MIN
    )


def test_freshness_slo_sets_the_backlog_grace(tmp_path: Path) -> None:
    """A tenth is a margin; workers with longer batches are rejected."""
    policy = load_settings(None, {**GOOD, "freshness-slo": FRESH}).autoscaling_policy
    assert (policy.freshness_slo, policy.catch_up) == (40.0, CatchUpPolicy(40.0, 36.0))
    worker = tmp_path / "ingest.yaml"
    worker.write_text("batch.max.age: 36 s\n")
    given = {**GOOD, "freshness-slo": FRESH, "target": "process", "state-dir": "s", "worker-config": worker}
    with pytest.raises(SettingError, match=r"batch\.max\.age=36 s alone misses freshness-slo=40 s"):
        load_settings(None, given)


def test_schedule_is_parsed() -> None:
    """An entry has cron lines with a time zone, limits and pauses."""
    entry = {**PERIOD, "min": 4, "pause": "scale-down"}
    (period,) = load_settings(None, {**GOOD, "schedule": [entry]}).autoscaling_policy.schedule
    assert (period.min_replicas, period.max_replicas, period.paused_directions) == (4, None, {Direction.DOWN})
    assert period.timezone == "Europe/Rome"


def test_consumption_window_spans_windows_and_batches() -> None:
    """The default is four times the longer of both."""
    assert (
        load_settings(None, {**GOOD, "backlog-grace": "1 min"}).autoscaling_policy.scale_up_evaluation_window
        == 240
    )
    assert (
        load_settings(None, {**GOOD, "window": "1 min"}).autoscaling_policy.scale_up_evaluation_window == 240
    )
    assert (
        load_settings(
            None, {**GOOD, "scale-up-evaluation-window": 0}
        ).autoscaling_policy.scale_up_evaluation_window
        == 0
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"min": 5, "max": 2}, "min=5 is above max=2"),
        ({"lead": True, "protocol": "consumer"}, "lead is about a classic group, but protocol=consumer"),
        ({"target": "keda"}, "target=keda needs workload"),
        ({**KEDA, "grpc-port": 70000}, "grpc-port=70000"),
        ({"grpc-port": 1}, "grpc-port given, but target=none"),
        ({"scale-up-policies": 0}, "scale-up-policies=0"),
        ({"scale_down_policies": 0}, "scale-down-policies=0"),
        ({"capacity": 0}, "capacity must be above 0"),
        ({"capacity": "fast"}, "capacity: 'fast' is not understood"),
        ({"headroom": 1.5}, "headroom=1.5"),
        ({"tolerance": 1}, "tolerance=1"),
        ({"tolerance": {"scale-up": 0.1, "scale-down": 1}}, "tolerance (scale-down)=1"),
        ({"tolerance": {"up": 0.1}}, "tolerance.up"),
        ({"scale-up-policies": []}, "scale-up-policies has no policies"),
        ({"scale-up-policies": {"policies": [{"type": "pod", "value": 1, "period": 9}]}}, "policies.0.type"),
        (
            {"scale-down-policies": [{"type": "pods", "value": 1, "period": "1 h"}]},
            "period of 3600 s is above",
        ),
        ({"min": 0, "idle-after": "20 s"}, "idle-after=20 s is less than window=30 s"),
        ({"min": 0}, "min=0 needs topics"),
        ({"schedule": [{"start": "0 0 * * *", "end": "0 6 * * *", "min": 0}]}, "min=0 needs topics"),
        ({"pause": "off"}, "pause"),
        ({"schedule": [PERIOD]}, "schedule entry 1 has neither min nor max nor pause"),
        ({"schedule": [{**PERIOD, "min": 11}]}, "schedule entry 1: min=11 is above max=10"),
        ({"min": 3, "schedule": [{**PERIOD, "max": 2}]}, "min=3 is above schedule entry 1: max=2"),
        ({"schedule": [{**PERIOD, "min": 2, "start": "8 o'clock"}]}, "is no cron line"),
        ({"schedule": [{**PERIOD, "min": 2, "timezone": "Europe/Rom"}]}, "timezone='Europe/Rom'"),
        ({"schedule": [{**PERIOD, "min": 2, "end": PERIOD["start"]}]}, "start and end are both"),
        ({"schedule": [{"min": 2, "end": "0 9 * * *"}]}, "schedule.0.start is missing"),
        ({"fallback": "static"}, "fallback=static needs fallback-replicas"),
        ({"fallback-replicas": 3}, "fallback-replicas=3 is given, but fallback=current"),
        ({"fallback": "static", "fallback-replicas": 12}, "not between min=1 and max=10"),
        (
            {"fallback": "static", "fallback-replicas": 2, "fallback-after": 1},
            "fallback-after=1 iteration of interval=10 s",
        ),
        ({"scale-up-evaluation-window": "20 s"}, "scale-up-evaluation-window=20 s is less than window=30 s"),
        ({"backlog-grace": "1 min", "scale-up-evaluation-window": "1 min"}, "twice backlog-grace=60 s"),
        ({"freshness-slo": "p95-freshness 3 s"}, "freshness-slo: 'p95-freshness 3 s' is not understood"),
        ({"freshness-slo": FRESH, "catch-up-time": 9}, "catch-up-time given, but freshness-slo sets them"),
        ({"freshness-slo": "p99-freshness 15 s"}, "freshness-slo=15 s is less than twice interval=10 s"),
        (
            {"freshness-slo": FRESH, "scale-up-evaluation-window": 0},
            "freshness-slo needs a scale-up-evaluation-window above 0",
        ),
        ({"learned-capacity-max": 0.9}, "learned-capacity-max=0.9 at least 1"),
        ({"learn-capacity": True, "scale-up-evaluation-window": 0}, "learn-capacity needs"),
        ({"heuristic": "mbb"}, "did you mean 'mbf'"),
        ({"heuristic": "steady:clam"}, "did you mean 'calm'"),
        ({"heuristic": "mbf", "move-cost": "15 s"}, "leave one of the two out"),
        ({"move-cost": 0}, "move-cost must be above 0"),
        ({"target": "kubernets"}, "target"),
        ({"source": "disk"}, "source"),
        ({"window": "2 s", "interval": "2 s"}, "window=2 s"),
        ({"port": 70000}, "port=70000"),
        ({"capasity": 1}, "did you mean 'capacity'?"),
        ({"zzz": 1}, "the settings are bootstrap"),
        ({"bootstrap": " "}, "bootstrap is empty"),
        ({"max": "many"}, "max: "),
        ({"target": "process"}, "needs worker-config"),
        ({**PROCESS, "state-dir": None}, "needs state-dir"),
        ({**PROCESS, "target": "none"}, "write target=process"),
        ({**PROCESS, "worker-command": ["w"]}, "{instance}"),
        ({**PROCESS, "worker-command": [], "worker-config": "/no/such"}, "is no file"),
        ({"stop-workers": True}, "stop-workers needs"),
        ({"take-lead": True}, "take-lead given, but not lead; write lead too"),
        ({"lead": True, "queue": "share", "topics": "t"}, "queue=share has none"),
        ({"lead": True, "lead-assignors": ""}, "lead-assignors"),
        ({"lead": True, "lead-session-timeout": 0}, "lead-session-timeout must be above 0"),
    ],
)
def test_invalid_settings_are_named(given: dict[str, Any], message: str) -> None:
    """An invalid value is rejected with its name and a remedy, as exit code 2."""
    with pytest.raises(SettingError) as caught:
        load_settings(None, {**GOOD, **given})
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_all_contradictions_are_reported_together() -> None:
    """One error lists every contradiction."""
    with pytest.raises(SettingError, match=r"min=5.*scale-up-policies=0"):
        load_settings(None, {**GOOD, "min": 5, "max": 2, "scale-up-policies": 0})


@pytest.mark.parametrize("name", ["bootstrap", "group", "capacity"])
def test_missing_settings_are_named(name: str) -> None:
    """Each required setting is reported by name."""
    with pytest.raises(SettingError, match=f"{name} is missing"):
        load_settings(None, {k: v for k, v in GOOD.items() if k != name})


@pytest.mark.parametrize(
    ("text", "message"), [("a: [", "line 1"), ("- a\n", "one flat mapping"), (None, "No such file")]
)
def test_invalid_files_are_named(tmp_path: Path, text: str | None, message: str) -> None:
    """A file that is missing, no YAML or no mapping is rejected with its name."""
    file = tmp_path / "sidecar.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingError, match=message) as caught:
        load_settings(file, {})
    assert "sidecar.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reset"),
    [
        (None, "latest"),
        ("topics: [a]\n", "earliest"),
        ("auto.offset.reset: latest\n", "latest"),
        ("auto.offset.reset: error\n", "earliest"),  # any other value (KAFKA-5337)
    ],
)
def test_offset_reset_is_the_workers(tmp_path: Path, text: str | None, reset: str) -> None:
    """Without a commit, consumers begin where the worker's settings say."""
    more: dict[str, Any] = {}
    if text is not None:
        worker = tmp_path / "ingest.yaml"
        worker.write_text(text)
        more = {"target": "process", "worker-config": worker, "state-dir": tmp_path}
    assert load_settings(None, {**GOOD, **more}).offset_reset == reset


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    """Neither the settings' text nor an error about them contains a password."""
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    secret = {**login, "sasl.password": "hunter2", "sasl.username": "me"}
    assert "hunter2" not in repr(load_settings(None, {**GOOD, "kafka": secret}))
    for bad in ({"kafka": {"sasl.password": ["hunter2"]}}, {"kafka": "hunter2"}):
        with pytest.raises(SettingError) as caught:
            load_settings(None, {**GOOD, **bad})
        assert "hunter2" not in str(caught.value)
    file = tmp_path / "sidecar.yaml"
    file.write_text("kafka: {sasl.password: hunter2\n")
    with pytest.raises(SettingError) as caught:
        load_settings(file, GOOD)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "value", "shown"),
    [
        ("interval", "${env:PRIVATE}", "interval: '${env:PRIVATE}' is not understood"),
        ("workload", "${file:FILE}", None),
        ("topics", ["orders", 3], None),
        ("heuristic", "${env:PRIVATE}", "${env:PRIVATE}"),
        ("freshness-slo", "p99 ${env:PRIVATE}", "freshness-slo: 'p99 ${env:PRIVATE}' is not understood"),
        ("schedule", [{"start": "${file:FILE}", "end": "* * * * *", "min": 1}], "${file:"),
    ],
)
def test_secret_reference_is_shown_unresolved(
    setting: str, value: object, shown: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error shows the value that a reference stands for."""
    file = tmp_path / "secret"
    file.write_text("hunter2\n")
    monkeypatch.setenv("PRIVATE", "hunter2")
    written = json.loads(json.dumps(value).replace("FILE", str(file)))
    given = {"bootstrap": "${env:PRIVATE}:9092", "group": "g", "capacity": "1 MB/s"}
    with pytest.raises(SettingError) as caught:
        load_settings(None, {**given, setting: written})
    assert "hunter2" not in str(caught.value)
    assert shown is None or shown in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"worker-command": "python w.py"}, 'write a list of words, like ["python", "worker.py"'),
        ({**PROCESS, "worker-command": ["w"]}, 'write a list of words, like ["python"'),
        ({"schedule": "abc"}, 'schedule: write a list of periods, like [{start: "0 8'),
        ({"schedule": ["abc"]}, "schedule.0: write a list of periods"),
        ({**KEDA, "workload": "lake"}, "workload: write deployment/NAME or statefulset/NAME"),
        ({"min": "two"}, "min: write a whole number, like 3"),
        ({"headroom": "lots"}, "headroom: write a number, like 0.9"),
        ({"scale-up-policies": "fast"}, "scale-up-policies: write a number of replicas, like 4, or policies"),
        ({"tolerance": "x"}, "tolerance: write a fraction, like 0.1"),
        ({"dry-run": "maybe"}, "dry-run: write true or false"),
        ({"kafka": {"a": [1]}}, "kafka.a: write text, a number, or true or false"),
        ({"target": "k8s"}, "target: 'k8s' is not one of the choices; write 'none', 'process', 'kubern"),
        ({"queue": "kqm"}, "queue: 'kqm' is not one of the choices; write 'kmq', 'ordered' or 'share'"),
        ({"topics": "orders,"}, "topics: a name is empty in 'orders,'"),
        ({"topics": ""}, "topics: a name is empty"),
        ({"state-dir": 3}, "state-dir: write a path"),
    ],
)
def test_malformed_values_have_plain_errors(given: dict[str, Any], message: str) -> None:
    """The error says what to write, with an example, instead of the validator's words."""
    with pytest.raises(SettingError) as caught:
        load_settings(None, {**GOOD, **given})
    assert message in str(caught.value)
    assert not any(word in str(caught.value) for word in ("input", "tuple", "pattern '^", "valid"))


@pytest.mark.parametrize(
    ("kafka", "message"),
    [
        ({"security.protocoll": "SSL"}, "no setting 'security.protocoll'; did you mean 'secu"),
        ({"socket.timeout.ms": "hunter2"}, "does not take the value of 'socket.timeout.ms'"),
        ({"socket.keepalive.enable": "hunter2"}, "value of 'socket.keepalive.enable'"),
    ],
)
def test_unknown_librdkafka_setting_is_named(kafka: dict[str, str], message: str) -> None:
    """It is a setting error (exit code 2), not an outage; its value is not shown."""
    settings = load_settings(None, {**GOOD, "bootstrap": "127.0.0.1:1", "kafka": kafka})
    with pytest.raises(SidecarSettingError, match=re.escape(message)) as caught:
        BrokerClient(settings.client_config, "g", 0.1)
    assert "hunter2" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bootstrap.servers": "b:1", "group.id": "g"}, "ingest as --worker-config"),
        ({**KEDA, "kubeconfig": "/nowhere/config"}, "kubeconfig /nowhere/config is no file"),
    ],
)
def test_wrong_file_is_recognized(given: dict[str, Any], message: str) -> None:
    """A consumer's file given to the sidecar, and a missing kubeconfig, are named."""
    with pytest.raises(SidecarSettingError, match=message):
        load_settings(None, {**GOOD, **given})
