"""The assignor benchmark runs ours and Kafka's on the smallest problems."""

import json

import pytest

from support.benchmarks import print_benchmark

pytestmark = pytest.mark.slow  # each of Kafka's, and ours, in every scene; make bench runs it, too


@pytest.fixture(scope="module")
def bench_output(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], bytes]:
    plot = tmp_path_factory.mktemp("bench") / "plot.png"
    printed = print_benchmark("placement.bench_assign", "--quick", "--peers", "java", "--plot", plot)
    return printed.splitlines(), plot.read_bytes()


def test_the_last_line_has_the_figures(bench_output: tuple[list[str], bytes]) -> None:
    """Times of every peer, in every scene, and what they moved."""
    lines, plot = bench_output
    assert plot.startswith(b"\x89PNG")
    found = json.loads(lines[-1].removeprefix("RESULT "))["1000x10"]
    assert set(found) == {"fresh", "join", "leave"}
    peers = ("trimtab", "trimtab_sticky", "trimtab_plugin")
    java = ("java_range", "java_sticky", "java_cooperative_sticky")
    for scene in found.values():
        assert all(scene[f"{name}{end}"] > 0 for name in peers + java for end in ("_ms", "_wire_ms"))
        assert scene["java_cooperative_sticky_second_ms"] > 0


def test_all_assignors_solved_the_same_problem(bench_output: tuple[list[str], bytes]) -> None:
    """Those that even the counts agree on the fewest moves, so owners reached them alike."""
    found = json.loads(bench_output[0][-1].removeprefix("RESULT "))["1000x10"]
    sticky = ("trimtab_sticky", "java_sticky", "java_cooperative_sticky")
    assert [found["join"][f"{name}_moves"] for name in sticky] == [100] * 3
    assert [found["leave"][f"{name}_moves"] for name in sticky] == [0] * 3
    assert {found[s][f"{n}_max_count_over_mean"] for s in found for n in sticky} == {1.0}
