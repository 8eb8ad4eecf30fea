// The five answers on top: why this many consumers, what is hot, what the last rebalance cost, what is late, who decides.

import { element, formatBytes, formatCount, formatDuration, formatPercent, formatRate, line, note, replaceContent } from "./format.js";
import { formatTime } from "./heatmap.js";
import { lateness } from "./timeline.js";

const big = (text, small, kind = "") =>
  element("p", { class: `big ${kind}`.trim() }, text, small ? element("small", {}, ` ${small}`) : null);

export function showAnswers(history, index) {
  const sample = history.samples[index];
  showCount(sample, history.settings);
  showHottest(history, index);
  showLastRebalance(history, index);
  showLate(sample, history.settings);
  showLeader(sample);
}

function showCount(sample, settings) {
  const m = sample.metrics;
  const counts = `${m.recommended_replicas ?? "?"} needed by the load · ${m.desired_replicas ?? "?"} wanted · ${m.planned_replicas ?? "?"} planned`;
  replaceContent("now", big(String(m.running_replicas ?? "?"), m.running_replicas === 1 ? "consumer runs" : "consumers run"),
    line(counts), line(explainNeed(sample)), explainLimit(sample.metrics, settings), explainDifference(sample));
}

function explainNeed(sample) {
  const m = sample.metrics;
  if (m.required_rate === undefined) return "The load is unknown: no write rate is known yet.";
  const usable = sample.capacity * sample.headroom;
  const least = Math.max(1, Math.ceil(m.required_rate / usable - 1e-6));
  const sum = `The load requires ${formatRate(m.required_rate)}; a consumer may take ${formatRate(usable)} `
    + `(${formatPercent(sample.headroom)} of ${formatRate(sample.capacity)}): at least ${formatCount(least, "consumer")}.`;
  if ((m.recommended_replicas ?? least) <= least) return sum;
  return `${sum} Whole partitions do not fill consumers exactly, so ${m.recommended_replicas} are needed.`;
}

function explainLimit({ recommended_replicas: needed, desired_replicas: wanted }, { min, max }) {
  if (wanted === max && needed > max) return line(`More are not allowed: max is ${max}.`, { class: "hot" });
  if (wanted === min && needed < min) return line(`Fewer are not allowed: min is ${min}.`);
  return null;
}

// Windows and starts are the decision's own reasons.
function explainDifference(sample) {
  const m = sample.metrics;
  const counts = [m.recommended_replicas, m.desired_replicas, m.running_replicas].filter((n) => n !== undefined);
  const reasons = sample.reasons.join("; ");
  const differs = new Set(counts).size > 1;
  return line(`${differs ? "Why they differ" : "Now"}: ${sample.action}: ${reasons}`, differs ? {} : { class: "note" });
}

function showHottest(history, index) {
  const [hottest] = history.hottest(index, 1);
  if (!hottest) return replaceContent("hottest", big("?"), note("No write rate is known for this time."));
  const fullest = history.seats(index).sort((a, b) => b.fill - a.fill)[0];
  const over = fullest && fullest.fill > 1;
  return replaceContent("hottest", big(history.label(hottest.partition)),
    line(`It needs ${formatPercent(hottest.ratio)} of a consumer's capacity, and is at ${history.consumer(hottest.owner)}.`),
    fullest ? line(`The fullest consumer is ${history.consumer(fullest.owner)}: ${formatPercent(fullest.fill)}`
      + ` with ${formatCount(fullest.partitions.length, "partition")}${over ? ", above its capacity" : ""}.`, over ? { class: "hot" } : {}) : null);
}

function showLastRebalance(history, index) {
  const last = history.lastRebalance(index);
  if (!last) return replaceContent("last", big("0", "moves"), note("No partition has moved in this history."));
  const pauses = history.pauses(last.from, last.to);
  const why = history.decisionAt(last.to);
  const pause = pauses.length
    ? `Each paused for ${formatDuration(pauses[Math.floor(pauses.length / 2)])} (median), at most ${formatDuration(pauses[pauses.length - 1])}.`
    : "Its pauses are not reported: only Trimtab's consumers report them.";
  return replaceContent("last", big(String(last.count), last.count === 1 ? "partition moved" : "partitions moved"),
    line(`At ${formatTime(last.t)}: ${formatRate(last.rate)} of load, ${(last.rate / last.capacity).toFixed(2)} consumers' worth (R).`),
    line(pause), why ? line(`Why: ${why.action}: ${why.reasons.join("; ")}`, { class: "note" }) : null);
}

export function isLate(sample) {
  const m = sample.metrics;
  return (m.overdue_backlog_bytes ?? 0) > 0 || Boolean(m.freshness_slo_s && m.p99_freshness_s > m.freshness_slo_s);
}

function showLate(sample, settings) {
  const m = sample.metrics;
  const late = isLate(sample);
  document.getElementById("late").closest("section").classList.toggle("alert", late);
  const freshness = m.p99_freshness_s === undefined ? null
    : line(`Records are committed within ${formatDuration(m.p99_freshness_s)} (p99${m.freshness_slo_s ? `, objective ${formatDuration(m.freshness_slo_s)}` : ""}).`);
  const worth = m.write_rate > 0 && m.backlog_bytes > 0 ? `, what is written in ${formatDuration(m.backlog_bytes / m.write_rate)}` : "";
  const waiting = line(`${formatBytes(m.backlog_bytes)} wait to be committed${worth}.`);
  const grace = m.freshness_slo_s ? `${formatDuration(m.freshness_slo_s)} (freshness-slo)` : `${formatDuration(settings.backlog_grace)} (backlog-grace)`;
  const meaning = note(`Late: has waited for longer than ${grace}.`);
  if (!late) return replaceContent("late", big("Nothing is late", "", "good"), waiting, freshness, meaning);
  return replaceContent("late", big(`${formatBytes(m.overdue_backlog_bytes)} late`, "", "hot"),
    line(describeEnd(sample), { class: "hot" }), waiting, freshness, meaning);
}

function describeEnd(sample) {
  const ends = (sample.catch_up ?? []).map((one) => one[2]);
  if (!ends.length) return `They are ${formatDuration(lateness(sample))} of reading.`;
  if (ends.includes(null)) {
    const stuck = ends.filter((end) => end === null).length;
    return `Not read at this write rate and count: ${formatCount(stuck, "partition")} get no time of a consumer.`;
  }
  const longest = Math.max(...ends);
  return `Read in ${formatDuration(longest)}, at ${formatTime(sample.until + longest)}, at this write rate and count.`;
}

function showLeader(sample) {
  const errors = sample.errors?.length ?? 0;
  const who = sample.leader === undefined ? "recorded" : sample.leader ? "This sidecar" : "Another sidecar";
  replaceContent("who", big(who, "", sample.leader === false ? "hot" : ""),
    line(sample.author ?? (sample.leader_name || "")),
    line(sample.carrier ?? "The consumers themselves carry its plans out."),
    sample.advice ? line("It only advises: nothing is scaled here.", { class: "hot" }) : null,
    errors ? line(`${formatCount(errors, "error")}: ${sample.errors.join("; ")}`, { class: "hot" }) : note("No errors."));
}
