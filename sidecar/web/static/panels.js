// The panels of text: the decision, moves, backlog, topics, handovers, state.

import { element, formatBytes, formatCount, formatDuration, formatPauses, formatPercent, formatR, formatRate, line, note, replaceContent, table } from "./format.js";
import { isLate } from "./answers.js";
import { formatTime } from "./heatmap.js";
import { NO_OWNER } from "./history.js";

const LISTED = 10;
const MEANINGS = { // of actions
  hold: "changes nothing", place: "moves partitions to other consumers", "scale-up": "starts consumers", drain: "empties a consumer, to stop it",
  stop: "stops an empty consumer", adopt: "takes over the count that runs", replace: "starts consumers for those that are gone",
};

export function showDecision(history, index, select) {
  const shown = history.decisionAt(index) ?? history.samples[index];
  const at = history.samples.indexOf(shown);
  const decisions = history.decisions();
  const earlier = decisions.filter((i) => i < at).pop();
  const later = decisions.find((i) => i > at);
  const step = (i, text) => (i === undefined ? null : element("button", { type: "button", class: "link", onclick: () => select(i) }, text));
  const gap = earlier === undefined || later === undefined ? null : " · ";
  replaceContent("decision-body",
    element("p", {}, element("strong", {}, shown.action), ` at ${formatTime(shown.t)}${MEANINGS[shown.action] ? `: ${MEANINGS[shown.action]}` : ""}${shown.advice ? " (advice: nothing is done)" : ""}`),
    element("ul", {}, ...shown.reasons.map((reason) => element("li", {}, reason))),
    shown.failure ? line(`Not carried out: ${shown.failure}`, { class: "hot" }) : null,
    shown.outcome ? line(`Carried out: ${shown.outcome}`) : null,
    ...describeAlternatives(history, shown, index),
    ...describeDone(history, shown),
    element("p", {}, step(earlier, "earlier decision"), gap, step(later, "later decision")));
}

function describeAlternatives(history, shown, index) {
  const m = shown.metrics;
  const own = history.alternatives(shown);
  const found = own?.length ? { t: shown.t, rows: own } : history.lastAlternatives(index);
  const count = shown.replicas ?? m.planned_replicas;
  const decided = m.planned_fill === undefined ? null : {
    consumers: count, moves: m.moves, r: m.r_score ?? 0, fill: m.planned_fill, fits: true, decided: true,
    cost: count + (history.moveCost ?? 0) * (m.r_score ?? 0),
  };
  if (!found && !decided) return [line("It moves no partition."), note("Its alternatives are not computed: the group is large, rebalanced, or the decision is from before the start.")];
  const others = (found?.rows ?? []).filter((one) => one.consumers !== decided?.consumers);
  const rows = [...others, ...(decided ? [decided] : [])].sort((a, b) => a.consumers - b.consumers);
  const cells = rows.map((one) => [
    `${one.consumers}${one.decided ? " (decided)" : ""}`, String(one.moves), one.r.toFixed(2), formatPercent(one.fill),
    one.fits ? "fits" : "too full", one.cost.toFixed(2),
  ]);
  const when = found && found.t !== shown.t ? ` as of ${formatTime(found.t)}` : "";
  return [
    element("h3", {}, `Cost, and that of the alternatives${when}`),
    table("Alternatives", ["consumers", "#moves", "#R planned", "#fullest", "within the fill limit", "#cost"], cells, rows.findIndex((one) => one.decided)),
    note(`R: the load of the moves in consumers' capacities. cost = consumers + λ × R planned${history.moveCost === null ? "" : `, λ = ${Number(history.moveCost.toPrecision(3))}`}.`),
  ];
}

// What came of a decision: its loads are those of its time, those of the moves are later ones.
function describeDone(history, shown) {
  if (shown.metrics.planned_fill === undefined) return [];
  const done = history.rebalances(history.samples.length - 1).find((one) => one.planned === shown);
  if (!done) return [note(shown.metrics.moves ? "Its moves are not seen yet." : "It has no moves.")];
  return [line(`Done at ${formatTime(done.t)}: ${formatCount(done.count, "move")}, R ${formatR(done.rate, done.capacity)}.`),
    note("R planned uses the loads at the decision, R done those when the partitions moved.")];
}

export function showMoves(history, index) {
  const { loads } = history.samples[index];
  const observed = history.moves(index).slice(0, LISTED).map((move) => [
    history.label(move.partition),
    `${move.source === NO_OWNER ? "none" : history.consumer(move.source)} → ${history.consumer(move.target)}`,
    formatPercent(history.ratio(loads[move.partition])), history.reason(index, move.partition),
  ]);
  const planned = [...history.samples.slice(0, index + 1)].reverse().find((s) => s.moves.length);
  const expected = (observed.length ? [] : planned?.moves ?? []).slice(0, LISTED).map((move) => [
    `${move.topic}-${move.partition}`, `${move.source ?? "none"} → ${move.target}`,
    move.load_bytes_per_s === null ? "unknown" : formatPercent(move.load_bytes_per_s / planned.capacity), move.reason || "expected by the plan",
  ]);
  const headings = ["partition", "from → to", "#load", "why"];
  const explained = note("Load: the partition's own, in consumers' capacities; the sum over the moves is R.");
  replaceContent("moves",
    observed.length ? line("At this time:") : note("No partition moved at this time."),
    observed.length ? table("Moves at this time", headings, observed) : null,
    expected.length ? line(`The last plan that moved partitions (${formatTime(planned.t)}):`) : null,
    expected.length ? table("Moves of the last plan", headings, expected) : null,
    observed.length || expected.length ? explained : null);
}

export function showBehind(history, index) {
  const sample = history.samples[index];
  if (!sample.catch_up) return replaceContent("behind", note("Not recorded for this time."));
  if (!sample.behind) return replaceContent("behind", line("No partition has a backlog."));
  const rows = sample.catch_up.map(([topic, number, seconds, bytes, late]) => [
    `${topic}-${number}`, formatBytes(bytes), late ? element("span", { class: "hot" }, "late") : "in time", formatDuration(seconds),
  ]);
  const more = sample.behind - rows.length;
  return replaceContent("behind", table("Time until the backlog is read", ["partition", "#backlog", "is it late?", "#all read in"], rows),
    more > 0 ? note(`and ${formatCount(more, "partition")} that need less`) : null,
    note(`${isLate(sample) ? `${formatCount(sample.late, "partition")} ${sample.late === 1 ? "is" : "are"} late` : "None is late"}. All read in: at the present write rates and the rate at which its consumer reads; at its capacity where that rate is not known. What is late is in time again before that.`));
}

export function showHottest(history, index) {
  const rows = history.hottest(index, LISTED).map((one) => [
    history.label(one.partition), history.consumer(one.owner), formatPercent(one.ratio),
  ]);
  replaceContent("hot", rows.length
    ? table("Hottest partitions", ["partition", "consumer", "#of a consumer's capacity"], rows)
    : note("No write rate is known for this time."));
}

export function showHandovers(history, index) {
  const rebalances = history.rebalances(index).map((one) => [
    formatTime(one.t), String(one.count), formatRate(one.rate), one.planned ? one.planned.metrics.r_score.toFixed(2) : "–", formatR(one.rate, one.capacity),
  ]);
  const handovers = history.handovers(0, index).filter((one) => one.index <= index);
  const sorted = handovers.map((one) => one.seconds).sort((a, b) => a - b);
  const pause = sorted.length
    ? line(`${formatCount(sorted.length, "handover")} in this history: a partition paused for ${formatPauses(sorted)}.${sorted.length > LISTED ? ` The last ${LISTED}:` : ""}`)
    : note("No handover was reported by Trimtab's consumers in this history.");
  const longest = [...handovers].reverse().slice(0, LISTED).map((one) => [
    formatTime(one.t), `${one.topic}-${one.partition}`, history.route(one), formatDuration(one.seconds),
  ]);
  replaceContent("handovers", pause, element("div", { class: "halves" },
    rebalances.length ? table("Rebalances, the newest first", ["time", "#partitions", "#moved load", "#R planned", "#R done"], rebalances.reverse().slice(0, LISTED)) : note("No rebalance."),
    longest.length ? table("Handovers, the newest first", ["time", "partition", "from → to", "#pause"], longest) : null),
    rebalances.length ? note("R: moved load in consumers' capacities; planned with the loads at the decision (– if none caused it), done with those when the partitions moved.") : null);
}

export function showTopics(history, index) {
  const sample = history.samples[index];
  const m = sample.metrics;
  if (!sample.topics) return replaceContent("topics", note("Not recorded for this time."));
  const rows = sample.topics.map(([topic, partitions, rate, backlog, age, until, fresh]) => [
    topic, String(partitions), formatRate(rate), formatBytes(backlog), age === null ? "unknown" : formatDuration(age), formatDuration(until),
    typeof fresh === "number" ? formatDuration(fresh) : "unknown",
  ]);
  const freshness = m.p99_freshness_s === undefined ? null
    : line(`Freshness of all tables: committed within ${formatDuration(m.p99_freshness_s)} (estimated p99`
      + `${m.freshness_slo_s ? `, objective ${formatDuration(m.freshness_slo_s)}` : ""}).`);
  const queue = m.queue_kind === undefined ? null
    : line(`Queue (${m.queue_kind}): ${formatCount(m.queue_waiting, "message")} waiting, ${m.queue_in_flight ?? "?"} in flight, ${m.queue_awaiting_redelivery ?? "?"} to redeliver.`);
  return replaceContent("topics", freshness, queue,
    table("Topics, the latest first", ["topic", "#partitions", "#written", "#backlog", "#oldest uncommitted", "#all read in", "#fresh within"], rows),
    note("Fresh within: 99 % of a topic's records are committed, and in the table that they are written to, within this time (estimate)."));
}

// What somebody on call should know first: the same list as `trimtab doctor` and the alerts have.
export function showConditions(history, index) {
  const { conditions, until, leader } = history.samples[index];
  document.getElementById("conditions").classList.toggle("alert", conditions.length > 0);
  const rows = conditions.map((one) => element("li", {},
    element("strong", { class: one.severity === "critical" ? "hot" : undefined }, one.type), `: ${one.message}`,
    element("span", { class: "note" }, ` (for ${formatDuration(Math.max(0, until - one.since))}, since ${formatTime(one.since)}${one.status === "Unknown" ? "; not known now" : ""})`),
    line(`→ ${one.remedy}`)));
  replaceContent("condition-list", rows.length ? element("ul", {}, ...rows) : leader ? line("Nothing: no condition holds.", { class: "good" }) : line("Another sidecar leads: its page has the group's conditions."));
}

export const decisionStep = (history, index, forward) => {
  const marks = history.decisions();
  const next = forward ? marks.find((i) => i > index) : marks.filter((i) => i < index).pop();
  return next ?? index;
};

