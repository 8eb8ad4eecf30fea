// The panels of text: why this many consumers, the decision, moves, backlog, handovers, state.

import { element, formatBytes, formatCount, formatDuration, formatPercent, formatRate, replaceContent, table } from "./format.js";
import { formatTime } from "./heatmap.js";
import { NO_OWNER } from "./history.js";
import { lateness } from "./timeline.js";

const note = (text) => element("p", { class: "note" }, text);
const line = (text, props) => element("p", props, text);
const LISTED = 10;

export function showNow(history, index) {
  const sample = history.samples[index];
  const m = sample.metrics;
  const usable = sample.capacity * sample.headroom;
  const needed = m.required_rate === undefined ? null : Math.max(1, Math.ceil(m.required_rate / usable - 1e-6));
  const load = m.required_rate === undefined
    ? line("The load is unknown: no write rate is known.")
    : line(`Required: ${formatRate(m.required_rate)} (written ${formatRate(m.write_rate)}, backlog ${formatBytes(m.backlog_bytes)}); `
      + `a consumer may take ${formatRate(usable)} (${formatPercent(sample.headroom)} of ${formatRate(sample.capacity)}): `
      + `at least ${formatCount(needed, "consumer")}. The fullest needs ${formatPercent(m.max_fill)} of its capacity.`);
  const late = lateness(sample);
  const isLate = (m.overdue_backlog_bytes ?? 0) > 0 || (m.freshness_slo_s && m.p99_freshness_s > m.freshness_slo_s);
  const isStuck = sample.catch_up?.some(([, , seconds]) => seconds === null);
  const until = isLate && sample.catch_up?.length
    ? ` It is read ${isStuck ? "never at this write rate and count" : `in ${formatDuration(Math.max(...sample.catch_up.map((one) => one[2])))}`}.`
    : "";
  replaceContent("now",
    line(`${formatCount(m.running_replicas, "replica")} running, ${m.recommended_replicas ?? "?"} needed by the load, `
      + `${m.desired_replicas ?? "?"} wanted after limits and windows, ${m.planned_replicas ?? "?"} planned (epoch ${sample.epoch}).`),
    load,
    line(isLate ? `Late: ${formatBytes(m.overdue_backlog_bytes)} wait longer than allowed (${formatDuration(late)}).${until}` : "Nothing is late.",
      isLate ? { class: "hot" } : {}),
    line(`Last decision: ${sample.action}: ${sample.reasons.join("; ")}${sample.failure ? `; failed: ${sample.failure}` : ""}`));
}

export function showDecision(history, index, select) {
  const shown = history.decisionAt(index) ?? history.samples[index];
  const at = history.samples.indexOf(shown);
  const m = shown.metrics;
  const decisions = history.decisions();
  const earlier = decisions.filter((i) => i < at).pop();
  const later = decisions.find((i) => i > at);
  const step = (i, text) => (i === undefined ? null : element("button", { type: "button", class: "link", onclick: () => select(i) }, text));
  const gap = earlier === undefined || later === undefined ? null : " · ";
  replaceContent("decision-body",
    line(`${formatTime(shown.t)}: ${shown.action}${shown.advice ? " (advice: nothing is done)" : ""}`),
    element("ul", {}, ...shown.reasons.map((reason) => element("li", {}, reason))),
    shown.failure ? line(`Not carried out: ${shown.failure}`, { class: "hot" }) : null,
    line(m.planned_fill === undefined ? "It moves no partition."
      : `Cost: ${formatCount(m.moves, "move")}, R ${(m.r_score ?? 0).toFixed(2)} (moved load in consumer capacities); fullest consumer then ${formatPercent(m.planned_fill)}.`),
    shown.outcome ? line(`Carried out: ${shown.outcome}`) : null,
    describeCertificate(history.samples[index].certificate),
    element("p", {}, step(earlier, "earlier decision"), gap, step(later, "later decision")));
}

function describeCertificate(certificate) {
  if (!certificate) return note("No certificate: certify is not set, or none is computed yet.");
  const gap = certificate.gap === null ? "unknown" : `${(certificate.gap * 100).toFixed(1)} %`;
  return line(`Certificate: cost ${Number(certificate.value).toFixed(2)}, no decision costs less than ${Number(certificate.lower_bound).toFixed(2)}; gap at most ${gap}.`);
}

export function showMoves(history, index) {
  const observed = history.moves(index).slice(0, LISTED).map((move) => [
    history.label(move.partition),
    `${move.source === NO_OWNER ? "none" : history.consumer(move.source)} → ${history.consumer(move.target)}`,
    history.reason(index, move.partition),
  ]);
  const planned = [...history.samples.slice(0, index + 1)].reverse().find((s) => s.moves.length);
  const expected = (planned?.moves ?? []).slice(0, LISTED).map((move) => [
    `${move.topic}-${move.partition}`, `${move.source ?? "none"} → ${move.target}`,
    `${move.reason || "expected by the plan"} (${formatRate(move.load_bytes_per_s)})`,
  ]);
  const headings = ["partition", "from → to", "why"];
  replaceContent("moves",
    observed.length ? line("At this time:") : note("No partition moved at this time."),
    observed.length ? table("Moves at this time", headings, observed) : null,
    expected.length ? line(`Of the last plan with moves (${formatTime(planned.t)}):`) : null,
    expected.length ? table("Moves of the last plan", headings, expected) : null);
}

export function showBehind(history, index) {
  const sample = history.samples[index];
  if (!sample.catch_up) return replaceContent("behind", note("Not recorded for this time."));
  if (!sample.behind) return replaceContent("behind", line("No partition has a backlog."));
  const rows = sample.catch_up.map(([topic, number, seconds, bytes]) => [`${topic}-${number}`, formatBytes(bytes), formatDuration(seconds)]);
  const more = sample.behind - rows.length;
  return replaceContent("behind", table("Time until the backlog is read", ["partition", "#backlog", "#read in"], rows),
    more > 0 ? note(`and ${formatCount(more, "partition")} that need less`) : null);
}

export function showHottest(history, index) {
  const rows = history.hottest(index, LISTED).map((one) => [
    history.label(one.partition), history.consumer(one.owner), formatPercent(one.ratio),
  ]);
  replaceContent("hot", rows.length
    ? table("Hottest partitions", ["partition", "consumer", "#of a consumer's capacity"], rows)
    : note("No write rate is known for this time."));
}

export function showHandovers(history) {
  const { samples } = history;
  const rows = [];
  let handovers = [];
  samples.forEach((sample, i) => {
    handovers = handovers.concat(sample.handovers ?? []);
    const moves = history.moves(i);
    const count = moves.length || sample.moved;
    if (count) rows.push([formatTime(sample.t), String(count), formatRate(sample.moved_rate), (sample.moved_rate / sample.capacity).toFixed(2)]);
  });
  const sorted = handovers.sort((a, b) => a - b);
  const pause = sorted.length
    ? line(`${formatCount(sorted.length, "handover")} in this history: a partition paused for ${formatDuration(sorted[Math.floor(sorted.length / 2)])} (median), at most ${formatDuration(sorted[sorted.length - 1])}.`)
    : note("No handover was reported by Trimtab's consumers in this history.");
  replaceContent("handovers", pause, rows.length
    ? table("Rebalances, the newest first", ["time", "#partitions", "#moved load", "#R"], rows.reverse().slice(0, LISTED))
    : null);
}

export function showState(history) {
  const sample = history.last;
  const m = sample.metrics;
  const freshness = m.p99_freshness_s === undefined ? null
    : line(`Tables: records are committed within ${formatDuration(m.p99_freshness_s)} (estimated p99`
      + `${m.freshness_slo_s ? `, objective ${formatDuration(m.freshness_slo_s)}` : ""}).`);
  const queue = m.queue_kind === undefined ? null
    : line(`Queue (${m.queue_kind}): ${m.queue_waiting ?? "?"} messages waiting, ${m.queue_in_flight ?? "?"} in flight, ${m.queue_awaiting_redelivery ?? "?"} to redeliver.`);
  replaceContent("state",
    line(sample.leader === false ? "This sidecar is in standby." : "This sidecar decides for the group."),
    sample.carrier ? line(sample.carrier) : null, freshness, queue,
    m.unknown_partitions ? line(`The write rate of ${formatCount(m.unknown_partitions, "partition")} is unknown.`) : null,
    sample.suspended ? line("Scale-up is suspended: the last one did not raise throughput.") : null,
    ...sample.errors.map((error) => line(error, { class: "hot" })),
    sample.errors.length ? null : note("No error in the last iteration."));
}

export const decisionStep = (history, index, forward) => {
  const marks = history.decisions();
  const next = forward ? marks.find((i) => i > index) : marks.filter((i) => i < index).pop();
  return next ?? index;
};

