"""The operator's page in headless Chromium: what it shows, keyboard, dark mode, hostile names, speed.

`make test-page` runs it and prints the figures; screenshots go to build/page.
"""

import json
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import median
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page

from support.page.page_browser import OUT, open_browser, wait_until
from support.page.page_reports import CAPACITY, HEADROOM, ReportSource
from support.page.page_simulation import MAX_REPLICAS, SimulatedSource
from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.http_server import NO_AUTH, AccessPolicy
from trimtab.sidecar.decision.condition import ConditionType, build_condition
from trimtab.sidecar.decision.decision import ScalingAction
from trimtab.sidecar.measurement.halts import describe_halts
from trimtab.sidecar.plan_carrier import CarrierStatus
from trimtab.sidecar.settings.settings import SidecarSettings, load_settings
from trimtab.sidecar.web.page_tools import PageTools, build_group_history
from trimtab.sidecar.web.static_files import load_static_routes
from trimtab.sidecar.web.web_server import SidecarWebServer

pytestmark = pytest.mark.page

HOSTILE = '<img src=x onerror="window.stolen=1"><script>window.stolen=1</script>'
MAX_PAGE_BYTES = 200_000
MAX_PHONE_HEIGHT = 3_000  # px, with the sections folded
TOP_OF = "document.getElementById('%s').getBoundingClientRect().top"
PICTURE_SIZE: Any = {"width": 1240, "height": 1050}
PICTURED = ("map", "decision", "moves", "what-if", "topics", "hot", "handovers")
SAMPLES = "window.trimtab.history.samples"
OVERDUE = "s.metrics.overdue_backlog_bytes"


class ShownGroup:
    """A sidecar's web server with a made-up group."""

    def __init__(
        self,
        source: ReportSource | SimulatedSource,
        iterations: int,
        policy: AccessPolicy = NO_AUTH,
        settings: SidecarSettings | None = None,
    ) -> None:
        self.source = source
        settings = settings or load_group_settings()
        self.settings = settings
        history = build_group_history(settings)
        self._history = history
        self.tools = PageTools(settings, SystemClock(), history)
        self.server = SidecarWebServer("lake", SystemClock(), 30.0, history, self.tools)
        for _ in range(iterations):
            self.iterate()
        self.address = f"http://127.0.0.1:{self.server.start('127.0.0.1', 0, policy)}/"

    def iterate(self, reason: str = "its consumer was too full") -> None:
        """Report an iteration."""
        self.server(self.source.next_report(reason=reason))
        self.wait_for_alternatives()

    def wait_for_alternatives(self) -> None:
        """Wait for what is computed in a thread."""
        alternatives = self._history._alternatives  # pyright: ignore[reportPrivateUsage]
        assert alternatives is not None
        alternatives.wait(60)

    def add_group(self, name: str, source: ReportSource, iterations: int) -> Callable[[], None]:
        """Serve another group, too; return what adds an iteration to it."""
        settings = replace(self.settings, group=name)
        history = build_group_history(settings)
        self.server.add_group(name, history, PageTools(settings, SystemClock(), history))

        def iterate() -> None:
            self.server.record_iteration(name, source.next_report())

        for _ in range(iterations):
            iterate()
        return iterate

    def stop(self) -> None:
        """End the server and what it computes."""
        self.server.stop()
        self.tools.close()


def load_group_settings(max_replicas: int = 30) -> SidecarSettings:
    """Return the settings of the shown group; its broker does not answer."""
    given = {"bootstrap": "127.0.0.1:1", "timeout": "1 s", "group": "lake", "capacity": CAPACITY}
    return load_settings(None, {**given, "max": max_replicas, "headroom": HEADROOM})


def show_simulated_group() -> ShownGroup:
    """Show a group whose sidecar decides by itself on made-up write rates."""
    settings = load_group_settings(MAX_REPLICAS)
    source = SimulatedSource(settings)
    return ShownGroup(source, source.length, settings=settings)


def read_text(page: Page, selector: str) -> str:
    """Return the text that is seen; figures and their units have a plain space in between."""
    return page.inner_text(selector).replace("\xa0", " ")


@contextmanager
def showing(group: ShownGroup, page: Page) -> Generator[Page]:
    """Open the page; no error may appear on its console."""
    problems: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error":
            problems.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: problems.append(str(error)))
    try:
        page.goto(group.address)
        wait_until(page, "window.trimtab.index >= 0")
        yield page
    finally:
        group.stop()
    assert problems == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_context(viewport={"width": 1280, "height": 1500}) as context:
        yield context.new_page()


@pytest.fixture(scope="module")
def figures() -> Iterator[dict[str, Any]]:
    """Figures of the RESULT line."""
    found: dict[str, Any] = {}
    yield found
    (OUT / "result.json").write_text(json.dumps(found))


def test_the_questions_of_an_operator_are_answered(page: Page) -> None:
    """Why six consumers, which partition is hot, what the last rebalance cost, and what is late."""
    with showing(ShownGroup(ReportSource(30, 5), 39), page):
        assert read_text(page, "#now").startswith("6 consumers run")
        assert "a consumer may take 800 kB/s (80 % of 1.0 MB/s): at least" in read_text(page, "#now")
        assert "of a consumer's capacity" in read_text(page, "#hottest")
        assert read_text(page, "#last").startswith("5 partitions moved")
        done = find_r(r"([\d.]+) consumers' worth\.", read_text(page, "#last"))
        planned = find_r(r"5 moves, ([\d.]+) consumers' worth by the loads", read_text(page, "#last"))
        assert planned < done  # the loads rose meanwhile
        assert page.inner_text("#decision-body tr.chosen td:nth-child(3)") == f"{planned:.2f}"
        assert f"5 moves, R {done:.2f}." in read_text(page, "#decision-body")
        (rebalance,) = page.locator("#handovers tbody tr:has(td:nth-child(5))").all_inner_texts()
        assert rebalance.split("\t")[3:] == [f"{planned:.2f}", f"{done:.2f}"]
        assert "Each paused for 0.11 s (median), at most 0.13 s." in read_text(page, "#last")
        assert read_text(page, "#late").startswith("3.0 MB late")
        assert "10 s ago it was 3.0 MB, too." in read_text(page, "#late")
        assert "Late: waiting for longer than 15 s (setting backlog-grace)." in read_text(page, "#late")
        assert "This sidecar\nhost-1 (pid 7)" in read_text(page, "#who").replace("\n\n", "\n")
        assert "scale-up" in read_text(page, "#decision-body")
        rows = page.locator("#decision-body tbody tr")
        assert [row.split()[0] for row in rows.all_inner_texts()] == ["5", "6", "7"]
        assert "(decided)" in read_text(page, "#decision-body tr.chosen")
        assert "its consumer was too full" in read_text(page, "#moves")
        assert page.locator("#hot tbody tr").count() == 10
        assert "5 handovers" in read_text(page, "#handovers")
        assert page.locator("#handovers tbody tr").count() == 1 + 5
        assert "orders" in read_text(page, "#topics")


def find_r(pattern: str, text: str) -> float:
    """Return the figure that a text tells."""
    found = re.search(pattern, text)
    assert found, text
    return float(found[1])


def test_a_new_iteration_appears_by_itself(page: Page) -> None:
    """The page follows; while an earlier time is shown it stays there, until told to follow again."""
    group = ShownGroup(ReportSource(30, 5), 39)
    with showing(group, page):
        group.iterate()
        wait_until(page, "window.trimtab.index === 39")
        assert read_text(page, "#now").startswith("7 consumers run")
        page.focus("#timeline")
        page.keyboard.press("Shift+ArrowLeft")
        assert page.evaluate("window.trimtab.index") == 19  # the decision before
        assert read_text(page, "#status").removeprefix("shown: ") in read_text(page, "#decision-title")
        group.iterate()
        wait_until(page, "window.trimtab.history.samples.length === 41")
        assert page.evaluate("window.trimtab.index") == 19
        page.click("#live")
        assert page.evaluate("window.trimtab.index") == 40
        assert read_text(page, "#decision-title") == "Decision"  # now: the header has the time


def test_moves_have_reasons_by_pointer_and_keyboard(page: Page) -> None:
    """A cell that has just moved tells from where and why; each view is reached by the keyboard."""
    with showing(ShownGroup(ReportSource(30, 5), 41), page):
        assert page.evaluate("window.trimtab.heatMap.marks") == 4
        box = page.locator("#heatmap").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 90)  # of the consumer that was started
        wait_until(page, "document.getElementById('cell').textContent.includes('came from')")
        assert "its consumer was too full" in read_text(page, "#cell")
        page.focus("input[value=consumers]")
        page.keyboard.press("ArrowRight")
        assert page.evaluate("window.trimtab.view") == "time"
        assert page.evaluate("window.trimtab.heatMap.marks") > 4  # those of before, too
        page.focus("#heatmap")
        page.keyboard.press("ArrowDown")
        assert "% of a consumer's capacity" in read_text(page, "#cell")


def test_one_of_several_groups_is_chosen(page: Page) -> None:
    """With two groups a list chooses the one that everything on the page is about, as its address does."""
    group = ShownGroup(ReportSource(30, 5), 5)
    second = group.add_group(HOSTILE, ReportSource(8, 3, topic="clicks", client="reader"), 2)
    with showing(group, page):
        assert page.locator("#groups option").all_inner_texts() == [HOSTILE, "lake"]
        assert read_text(page, "#group") == HOSTILE  # the first by name
        assert read_text(page, "#now").startswith("3 consumers run")
        second()
        wait_until(page, "window.trimtab.history.samples.length === 3")
        with page.expect_navigation():
            page.select_option("#groups", "lake")
        wait_until(page, "window.trimtab?.history?.group === 'lake'")
        assert read_text(page, "#now").startswith("5 consumers run")
        assert "orders" in read_text(page, "#topics")
        group.iterate()
        wait_until(page, "window.trimtab.history.samples.length === 6")
        wait_until(page, "document.getElementById('lambda').value !== ''")
        page.locator("header").screenshot(path=OUT / "page-chooser.png")
        page.go_back()  # waits for the page
        wait_until(page, "window.trimtab?.history?.group !== 'lake'")
        assert page.input_value("#groups") == HOSTILE
        assert page.evaluate("window.stolen") is None


def test_a_group_that_is_not_managed_tells_why(page: Page) -> None:
    """A group with wrong settings is in the list, and its page shows what is wrong, until it is managed."""
    group = ShownGroup(ReportSource(30, 5), 5)
    group.server.describe_groups_by(lambda: {"wrong": "min=9 is above max=3"}, dict)
    try:
        page.goto(f"{group.address}?group=wrong")
        wait_until(page, "document.getElementById('status').textContent.includes('min=9 is above max=3')")
        assert page.input_value("#groups") == "wrong"
        group.server.describe_groups_by(dict, lambda: {"elsewhere": ["wrong"]})
        wait_until(page, "document.getElementById('status').textContent.includes('another sidecar manages')")
        group.server.describe_groups_by(dict, dict)
        group.add_group("wrong", ReportSource(8, 3), 2)
        wait_until(page, "window.trimtab.index === 1")
        assert read_text(page, "#now").startswith("3 consumers run")
    finally:
        group.stop()


def test_queue_carrier_and_another_leader_are_told(page: Page) -> None:
    """A queue's messages, what carries plans out for any client, and a standby with its leader's name."""
    group = ShownGroup(ReportSource(6, 2), 3)
    report = group.source.next_report()
    queue = replace(
        report.decision.metrics,
        queue_kind="kmq", queue_waiting=420, queue_in_flight=7, queue_awaiting_redelivery=3,
    )  # fmt: skip
    lead = CarrierStatus(is_steering=True, text="leads the group", since=report.time)
    group.server(replace(report, decision=replace(report.decision, metrics=queue), carrier=lead))
    with showing(group, page):
        assert "420 messages waiting, 7 in flight, 3 to redeliver" in read_text(page, "#topics")
        assert "Plan carrier: leads the group" in read_text(page, "#who")
        standby = replace(group.source.next_report(), is_leader=False, leader="host-2 (pid 9)")
        group.server(standby)
        wait_until(page, "document.getElementById('who').textContent.includes('Another sidecar')")
        assert "host-2 (pid 9)" in read_text(page, "#who")


def test_conditions_come_first(page: Page) -> None:
    """What somebody on call should know is above the answers; without a condition that is said."""
    group = ShownGroup(ReportSource(6, 2), 3)
    with showing(group, page):
        assert read_text(page, "#condition-list") == "Nothing: no condition holds."
        report = group.source.next_report()
        stuck = build_condition(
            ConditionType.PARTITIONS_STUCK, "NoCommits", f"{HOSTILE} is stuck", "read its log"
        )
        group.server(replace(report, conditions=(replace(stuck, since=report.time - 240),)))
        wait_until(page, "document.getElementById('condition-list').textContent.includes('PartitionsStuck')")
        told = read_text(page, "#condition-list")
        assert f"PartitionsStuck: {HOSTILE} is stuck (for 4 min, since " in told
        assert "→ read its log" in told
        assert page.evaluate(f"{TOP_OF % 'conditions'} < {TOP_OF % 'answers'}")


def test_a_backlog_that_grows_has_no_end(page: Page) -> None:
    """Consumers that read less than is written do not catch up, although their capacity would do."""
    group = ShownGroup(ReportSource(6, 2), 16)
    report = group.source.next_report()
    read = {p: 0.9 * (load.bytes_per_s or 0.0) for p, load in report.write_rates.items()}
    metrics = replace(report.decision.metrics, overdue_backlog_bytes=4e6, consumption_rate=sum(read.values()))
    late = replace(report, consumption_rates=read, decision=replace(report.decision, metrics=metrics))
    loads = {
        p: replace(load, backlog_bytes=100 * (load.bytes_per_s or 0)) for p, load in late.write_rates.items()
    }
    group.server(replace(late, write_rates=loads))
    with showing(group, page):
        assert re.search(
            r"No end in sight, not at this rate: [\d.]+ MB/s are read, [\d.]+ MB/s written",
            read_text(page, "#late"),
        )
        assert "In time again" not in read_text(page, "#late")
        assert "not at this rate" in read_text(page, "#behind")


def test_the_row_of_a_drain_is_the_count_that_is_left(page: Page) -> None:
    """A drain from 6 to 5 is decided for 5, which is no alternative then."""
    group = ShownGroup(ReportSource(30, 6), 3)
    report = group.source.next_report()
    metrics = replace(report.decision.metrics, planned_fill=0.7, moves=4, r_score=0.5)
    assert report.plan is not None
    plan = replace(report.plan, replicas=5, draining=("worker-5",))
    drain = replace(report.decision, action=ScalingAction.DRAIN, metrics=metrics, plan=plan)
    group.server(replace(report, decision=drain))
    group.wait_for_alternatives()
    group.iterate()
    with showing(group, page):
        page.evaluate("window.trimtab.choose(3)")
        rows = [row.split()[:2] for row in page.locator("#decision-body tbody tr").all_inner_texts()]
        assert rows == [["5", "(decided)"], ["7", rows[1][1]]]


def test_colours_have_one_scale(page: Page) -> None:
    """A partition of a quarter of a capacity has the scale's middle colour, also if it is the hottest."""
    group = ShownGroup(ReportSource(4, 2), 1)
    report = group.source.next_report()
    quarter = dict.fromkeys(report.write_rates, PartitionLoad(CAPACITY / 4, 1.0, 0.0, 0, CAPACITY / 4))
    group.server(replace(report, write_rates=quarter))
    with showing(group, page):
        box = "trimtab.heatMap.area.x + 3, trimtab.heatMap.area.y + 40, 1, 1"
        seen = page.evaluate(f"[...heatmap.getContext('2d').getImageData({box}).data].slice(0, 3)")
        assert seen == [115, 172, 105]  # between green and yellow, of six stops from blue to red
        assert "0, 25 to 100 %" in read_text(page, "#map")


def test_times_have_their_zone(browser: Browser) -> None:
    """A time on the page tells its zone: that of the browser."""
    with (
        browser.new_context(timezone_id="Asia/Tokyo", locale="en-GB") as context,
        showing(ShownGroup(ReportSource(30, 5), 39), context.new_page()) as page,
    ):
        for panel in ("#status", "#last", "#handovers tbody", "#decision-body"):
            assert re.search(r"\d\d:\d\d:\d\d (GMT\+9|JST)", read_text(page, panel)), panel


def test_a_phone_has_a_layout_of_its_own(browser: Browser, figures: dict[str, Any]) -> None:
    """At 390 px nothing scrolls sideways, sections fold, and an open one has no column of single words."""
    with (
        browser.new_context(viewport={"width": 390, "height": 844}, is_mobile=True) as context,
        showing(ShownGroup(ReportSource(30, 5), 39), context.new_page()) as page,
    ):
        figures["phone_px"] = page.evaluate("document.documentElement.scrollHeight")
        page.screenshot(path=OUT / "page-phone.png", full_page=True)
        assert figures["phone_px"] < MAX_PHONE_HEIGHT
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        for summary in page.locator("details.fold > summary").all():
            summary.focus()
            page.keyboard.press("Enter")
        page.screenshot(path=OUT / "page-phone-open.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        is_wide = "(s) => s.scrollWidth > s.clientWidth + 1"
        assert (
            page.evaluate(f"[...document.querySelectorAll('section')].filter({is_wide}).map((s) => s.id)")
            == []
        )
        is_narrow = "(td) => td.offsetParent && td.offsetWidth < 250"
        assert page.evaluate(f"[...document.querySelectorAll('td')].filter({is_narrow}).length") == 0


def test_figures_of_a_deciding_sidecar_agree(page: Page) -> None:
    """The record, the simulation of its settings, fills, reasons and lateness tell the same."""
    with showing(show_simulated_group(), page):
        assert read_text(page, "#now").startswith("6 consumers run")
        fullest = page.evaluate("window.trimtab.history.last.metrics.max_fill")
        assert f"The fullest consumer is worker-2: {fullest:.0%}".replace("%", " %") in read_text(
            page, "#hottest"
        )
        assert "Nothing is late" in read_text(page, "#late")
        assert "Last late from" in read_text(page, "#late")
        choose_late_time(page)
        late = read_text(page, "#late")
        assert re.search(r"MB late\s+In time again in \d+ s, at ", late)
        assert re.search(r"10 s ago it was [\d.]+ MB: it is shrinking", late)
        planned = page.locator("#handovers tbody tr:has(td:nth-child(5)) td:nth-child(4)").all_inner_texts()
        assert all(re.fullmatch(r"\d\.\d\d", one) for one in planned)  # each rebalance has its own decision
        assert "late" in read_text(page, "#behind tbody")
        held = "s.action === 'hold' && s.metrics.max_fill > s.headroom + 0.01"
        held_reasons = page.evaluate(f"{SAMPLES}.filter((s) => {held}).map((s) => s.reasons.join())")
        assert held_reasons
        assert all("the fullest consumer is at" in reasons for reasons in held_reasons)


def test_freshness_is_told_by_topic(page: Page) -> None:
    """Each topic has the freshness of its table, once three iterations are known."""
    with showing(ShownGroup(ReportSource(6, 2), 5), page):
        headings = page.locator("#topics th").all_inner_texts()
        (row,) = page.locator("#topics tbody tr").all()
        cells = dict(zip(headings, row.locator("td").all_inner_texts(), strict=True))
        assert cells["topic"] == "orders"
        assert cells["fresh within"].endswith("\xa0s")


def test_hostile_names_are_text(page: Page) -> None:
    """A topic, client id and reason with HTML come out as they are."""
    source = ReportSource(6, 2, topic=HOSTILE, client=HOSTILE)
    group = ShownGroup(source, 19)
    group.iterate(reason=HOSTILE)
    group.iterate()
    with showing(group, page):
        page.focus("#heatmap")
        page.keyboard.press("ArrowDown")
        for panel in ("#moves", "#hot", "#behind", "#cell", "#hottest", "#topics", "#handovers"):
            assert HOSTILE in read_text(page, panel)
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("window.stolen") is None


def test_a_halted_table_is_named_with_its_reason(page: Page) -> None:
    """Beside the decision, as the doctor names it."""
    group = ShownGroup(ReportSource(6, 2), 2)
    report = group.source.next_report()
    halts = describe_halts({TopicPartition("orders", 0): "lake.orders: no column for n int"})
    reasons = (*report.decision.reasons, *halts)
    group.server(replace(report, decision=replace(report.decision, reasons=reasons)))
    with showing(group, page):
        assert "orders-0 is not read: lake.orders: no column for n int" in read_text(page, "#decision")


def test_a_token_is_asked_for(page: Page) -> None:
    """Without its token the page shows no data; with it, it opens."""
    group = ShownGroup(ReportSource(6, 2), 3, AccessPolicy(token="hunter2"))  # noqa: S106 - a test value
    try:
        page.goto(group.address)
        page.wait_for_selector("#token:visible")
        assert read_text(page, "#now") == ""
        page.fill("#token", "hunter2")
        with page.expect_navigation():
            page.keyboard.press("Enter")
        wait_until(page, "window.trimtab?.index === 2")
    finally:
        group.stop()


def test_what_if_is_answered(page: Page) -> None:
    """λ = 1.25 on the recorded stream gives a sentence, a table, and lines to copy; by keyboard alone."""
    with showing(ShownGroup(ReportSource(30, 5), 39), page):
        page.focus("#lambda")
        page.keyboard.press("Control+A")
        page.keyboard.type("1.25")
        page.keyboard.press("Enter")
        wait_until(page, "document.getElementById('what-if-settings') !== null")
        assert read_text(page, "#what-if-settings") == "heuristic: steady:1.25"
        assert read_text(page, "#what-if-status").startswith("λ = 1.25 (now 0.5): ")
        rows = [row.split("\t") for row in page.locator("#what-if-result tbody tr").all_inner_texts()]
        assert len(rows) == 7
        units = {row[0]: [cell.rpartition("\xa0")[2] for cell in row[1:]] for row in rows}
        assert units["traffic that is late"] == [
            "%",
            "%",
            "points",
            "\u2013",
            "\u2013",
        ]  # the record has no bytes
        assert units["time with something late"] == ["%", "%", "points", "%", "points"]
        moves = [
            int(cell.replace("\u2212", "-")) for cell in next(row for row in rows if row[0] == "moves")[1:]
        ]
        present, changed, effect, recorded, error = moves
        assert (effect, error) == (changed - present, present - recorded)
        assert 0 < abs(effect) <= abs(error)  # so that nothing can be told of it
        told = f"moves (effect {effect:+}, error {error:+})".replace("-", "\u2212")
        assert told in read_text(page, "#what-if-check")
        assert "not checked: traffic that is late, longest wait until read." in read_text(
            page, "#what-if-check"
        )
        assert ("Why can a higher λ move more?" in read_text(page, "#what-if-result")) == (effect > 0)
        page.fill("#min", "9")
        page.fill("#max", "2")
        page.click("#what-if-form button.main")
        wait_until(page, "document.getElementById('what-if-status').className === 'bad'")
        assert "min=9 is above max=2" in read_text(page, "#what-if-status")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["consumers", "time"])
def test_axe_finds_nothing_serious(browser: Browser, figures: dict[str, Any], scheme: Any, view: str) -> None:
    """Names, roles and contrast are right in both themes; the pictures are the docs' screenshots."""
    with (
        browser.new_context(viewport=PICTURE_SIZE, color_scheme=scheme, bypass_csp=True) as context,
        showing(show_simulated_group(), context.new_page()) as page,
    ):
        page.click(f"input[value={view}]")
        if view == "consumers":
            page.fill("#lambda", "1.25")
            page.click("#what-if-form button.main")
            wait_until(page, "document.getElementById('what-if-settings') !== null")
        take_pictures(page, f"{view}-{scheme}")
        take_late_pictures(page, f"{view}-{scheme}")
        page.add_script_tag(path=OUT / "axe.min.js")
        violations = page.evaluate("axe.run().then((found) => found.violations)")
    serious = [one["id"] for one in violations if one["impact"] in {"serious", "critical"}]
    figures["serious"] = figures.get("serious", 0) + len(serious)
    assert serious == []


def take_pictures(page: Page, name: str) -> None:
    """Take the docs' pictures of this view."""
    page.evaluate("document.activeElement.blur()")
    page.evaluate("window.scrollTo({top: 0, behavior: 'instant'})")
    page.add_style_tag(
        content="main { align-items: start }"
    )  # no section is filled up to its neighbour's height
    take_overview(page, f"overview-{name}")
    for part in PICTURED:
        take_section(page, part, name)


def take_overview(page: Page, name: str) -> None:
    """Take a picture of the answers and the time line."""
    page.evaluate("window.scrollTo({top: 0, behavior: 'instant'})")
    time = page.locator("#time").bounding_box()
    assert time is not None
    first: Any = {"x": 0, "y": 0, "width": PICTURE_SIZE["width"], "height": time["y"] + time["height"] + 14}
    page.screenshot(path=OUT / f"page-{name}.png", clip=first)


def take_section(page: Page, part: str, name: str) -> None:
    """Take a picture of a section."""
    section = page.locator(f"section#{part}, section:has(> details > #{part})")
    section.screenshot(path=OUT / f"page-{part}-{name}.png")


def choose_late_time(page: Page) -> None:
    """Show the time at which most was late of what has an end."""
    page.evaluate(
        f"""(() => {{
        const late = window.trimtab.history.samples.map((s) => s.late_until ? {OVERDUE} : 0);
        window.trimtab.choose(late.indexOf(Math.max(...late)));
        }})()"""
    )


def take_late_pictures(page: Page, name: str) -> None:
    """Take the docs' pictures of a time at which something is late."""
    choose_late_time(page)
    take_overview(page, f"late-{name}")
    take_section(page, "behind", name)
    page.click("#live")


def test_ten_thousand_partitions_draw_fast(page: Page, figures: dict[str, Any]) -> None:
    """10,000 partitions of 500 consumers draw in less than 100 ms, and so does each update."""
    group = ShownGroup(ReportSource(10_000, 500), 6)
    with showing(group, page):
        draw = "Array.from({length: 9}, () => trimtab.heatMap.draw(trimtab.history, trimtab.index, '%s'))"
        drawn = {view: median(page.evaluate(draw % view)) for view in ("consumers", "time")}
        for number in range(5):
            group.iterate()
            wait_until(page, f"window.trimtab.measured.update_ms.length > {number}")
        updates = page.evaluate("window.trimtab.measured.update_ms")
    figures["draw_ms"] = round(max(drawn.values()), 1)
    figures["update_ms"] = round(median(updates), 1)
    assert figures["draw_ms"] < 100
    assert figures["update_ms"] < 300


def test_the_page_is_small(figures: dict[str, Any]) -> None:
    """All files together have at most 200 kB."""
    size = sum(len(respond()[2]) for respond in load_static_routes().values())
    figures["page_kb"] = round(size / 1000)
    assert size <= MAX_PAGE_BYTES
