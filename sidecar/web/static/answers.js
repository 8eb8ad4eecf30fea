// The five answers on top: why this many consumers, what is hot, what the last rebalance cost, what is late, who decides.

import { element, formatBytes, formatCount, formatDuration, formatPauses, formatPercent, formatR, formatRate, line, note, replaceContent } from "./format.js";
import { formatTime } from "./heatmap.js";


const big = (text, small, kind = "") =>
  element("p", { class: `big ${kind}`.trim() }, text, small ? element("small", {}, ` ${small}`) : null);

export function showAnswers(history, index) {
  const sample = history.samples[index];
  showCount(sample);
  showHottest(history, index);
  showLastRebalance(history, index);
  showLate(history, index);
  showLeader(sample);
}

function showCount(sample) {
  const m = sample.metrics;
  const counts = `${m.recommended_replicas ?? "?"} needed by the load · ${m.desired_replicas ?? "?"} wanted · ${m.planned_replicas ?? "?"} planned`;
  const starting = m.joined_replicas !== undefined && m.joined_replicas < m.running_replicas;
  replaceContent("now", big(String(m.running_replicas ?? "?"), starting ? `consumers started, ${m.joined_replicas} read` : m.running_replicas === 1 ? "consumer runs" : "consumers run"),
    line(counts), line(explainNeed(sample)), explainDifference(sample));
}

function explainNeed(sample) {
  const m = sample.metrics;
  if (m.required_rate === undefined) return "The load is unknown: no write rate is known yet.";
  const usable = sample.capacity * sample.headroom;
  const least = Math.max(1, Math.ceil(m.required_rate / usable - 1e-6));
  const sum = `The load requires ${formatRate(m.required_rate)}; a consumer may take ${formatRate(usable)} `
    + `(${formatPercent(sample.headroom)} of ${formatRate(sample.capacity)}): at least ${formatCount(least, "consumer")}.`;
  if ((m.recommended_replicas ?? least) <= least) return sum;
  return `${sum} Whole partitions do not fill consumers exactly: the heuristic needs ${m.recommended_replicas}.`;
}

// Windows and starts are the decision's own reasons.
function explainDifference(sample) {
  const m = sample.metrics;
  const counts = [m.recommended_replicas, m.desired_replicas, m.running_replicas].filter((n) => n !== undefined);
  const reasons = sample.reasons.join("; ");
  const differs = new Set(counts).size > 1;
  const head = differs && sample.action === "hold" ? "Why they differ" : "Now"; // an action has reasons of its own
  return line(`${head}: ${sample.action}: ${reasons}`, differs ? {} : { class: "note" });
}

function showHottest(history, index) {
  const [hottest] = history.hottest(index, 1);
  if (!hottest) return replaceContent("hottest", big("?"), note("No write rate is known for this time."));
  const { headroom } = history.samples[index];
  const fullest = history.seats(index).sort((a, b) => b.fill - a.fill)[0];
  return replaceContent("hottest", big(history.label(hottest.partition)),
    line(`The hottest: it needs ${formatPercent(hottest.ratio)} of a consumer's capacity, and is read by ${history.consumer(hottest.owner)}.`),
    judgePartition(hottest.ratio, headroom), fullest ? judgeConsumer(history.consumer(fullest.owner), fullest, headroom) : null);
}

function judgePartition(ratio, headroom) {
  if (ratio > 1) return line("Too hot: it falls behind on any consumer. Split its keys, or give consumers more capacity.", { class: "hot" });
  if (ratio > headroom) return line(`Hot: it alone exceeds the fill limit (${formatPercent(headroom)} of a capacity), and has a consumer of its own at best.`, { class: "hot" });
  return line(`Not too hot: consumers are filled to at most ${formatPercent(headroom)} of their capacity (the fill limit), and it fits into one.`);
}

function judgeConsumer(name, { fill, partitions }, headroom) {
  const what = `The fullest consumer is ${name}: ${formatPercent(fill)} with ${formatCount(partitions.length, "partition")}`;
  if (fill > 1) return line(`${what}, above its capacity: it falls behind.`, { class: "hot" });
  return line(fill > headroom + 0.005 ? `${what}, above the fill limit and below its capacity: it reads faster than is written.` : `${what}, within the fill limit.`);
}

function showLastRebalance(history, index) {
  const last = history.lastRebalance(index);
  if (!last) return replaceContent("last", big("0", "moves"), note("No partition has moved in this history."));
  const pauses = history.pauses(last.from, last.to);
  const why = last.planned ?? history.decisionAt(last.to);
  const pause = pauses.length ? `Each paused for ${formatPauses(pauses)}.`
    : "Its pauses are not reported: only Trimtab's consumers report them.";
  return replaceContent("last", big(String(last.count), last.count === 1 ? "partition moved" : "partitions moved"),
    line(`At ${formatTime(last.t)}: ${formatRate(last.rate)} of load, ${formatR(last.rate, last.capacity)} consumers' worth.`),
    line(pause), describePlan(last), why ? line(`Why: ${why.action}: ${why.reasons.join("; ")}`, { class: "note" }) : null);
}

function describePlan({ planned }) {
  if (!planned) return note("No decision planned it: the group rebalanced by itself.");
  const m = planned.metrics;
  return note(`Planned at ${formatTime(planned.t)}: ${formatCount(m.moves, "move")}, ${m.r_score.toFixed(2)} consumers' worth by the loads of that time.`);
}

export function isLate(sample) {
  const m = sample.metrics;
  return (m.overdue_backlog_bytes ?? 0) > 0 || Boolean(m.freshness_slo_s && m.p99_freshness_s > m.freshness_slo_s);
}

function showLate(history, index) {
  const sample = history.samples[index];
  const m = sample.metrics;
  const late = isLate(sample);
  document.getElementById("late").closest("section").classList.toggle("alert", late);
  const freshness = m.p99_freshness_s === undefined ? null
    : line(`Records are committed within ${formatDuration(m.p99_freshness_s)} (p99 of the last minutes${m.freshness_slo_s ? `, objective ${formatDuration(m.freshness_slo_s)}` : ""}).`);
  const worth = m.write_rate > 0 && m.backlog_bytes > 0 ? `: ${formatDuration(m.backlog_bytes / m.write_rate)} of writing` : "";
  const waiting = line(`${formatBytes(m.backlog_bytes)} are waiting to be committed${worth}.`);
  const meaning = note(`Late: waiting for longer than ${formatDuration(history.settings.backlog_grace)} (setting backlog-grace)`
    + `${m.freshness_slo_s ? ", or p99 above the objective (freshness-slo)" : ""}.`);
  if (!late) return replaceContent("late", big("Nothing is late", "", "good"), waiting, freshness, describeLastLate(history, index), meaning);
  const overdue = m.overdue_backlog_bytes > 0;
  return replaceContent("late", big(overdue ? `${formatBytes(m.overdue_backlog_bytes)} late` : "Objective missed", "", "hot"),
    overdue ? line(describeEnd(history, index), { class: "hot" }) : null, overdue ? describeTrend(history, index) : null, waiting, freshness, meaning);
}

// When nothing is late any more: by the sidecar's estimate, at the rates that it measures.
function describeEnd(history, index) {
  const sample = history.samples[index];
  const { desired_replicas: wanted, joined_replicas: joined } = sample.metrics;
  const more = wanted > joined ? ` ${formatCount(wanted, "consumer")} are wanted and ${joined} read so far: the end is nearer once all do.` : "";
  if (sample.late_until === undefined) return "When it ends is not recorded for this time.";
  const { consumption_rate: read, write_rate: written } = sample.metrics;
  const rates = read === undefined ? "if consumers read at their capacity" : `at this rate: ${formatRate(read)} are read, ${formatRate(written)} written`;
  if (sample.late_until === null) return `No end in sight, not ${rates}.${more}`;
  return `In time again in ${formatDuration(sample.late_until)}, at ${formatTime(sample.until + sample.late_until)}, ${rates}.${more}`;
}

function describeTrend(history, index) {
  const now = history.samples[index];
  const before = history.samples.slice(0, index).findLast((one) => one.metrics.overdue_backlog_bytes !== undefined);
  if (!before) return null;
  const [was, is] = [before, now].map((one) => one.metrics.overdue_backlog_bytes);
  const ago = `${formatDuration(now.t - before.t)} ago it was ${formatBytes(was)}`;
  if (formatBytes(is) === formatBytes(was)) return line(`${ago}, too.`);
  if (is < was) return line(`${ago}: it is shrinking.`);
  return line(`${ago}: it is growing.`);
}

function describeLastLate(history, index) {
  const { samples } = history;
  let to = index;
  while (to >= 0 && !isLate(samples[to])) to -= 1;
  if (to < 0) return line("Nothing was late in this history.");
  let from = to;
  while (from > 0 && isLate(samples[from - 1])) from -= 1;
  const most = Math.max(...samples.slice(from, to + 1).map((one) => one.metrics.overdue_backlog_bytes ?? 0));
  const end = samples[to + 1].t;
  return line(`Last late from ${formatTime(samples[from].t)} until ${formatTime(end)}${most ? `, up to ${formatBytes(most)}` : ""}.`);
}

function showLeader(sample) {
  const who = sample.leader === undefined ? "recorded" : sample.leader ? "This sidecar" : "Another sidecar";
  replaceContent("who", big(who, "", sample.leader === false ? "hot" : ""),
    line(sample.author ?? (sample.leader_name || "")),
    line(sample.carrier ?? "The consumers themselves carry its plans out."),
    sample.advice ? line("It only advises: nothing is scaled here.", { class: "hot" }) : null,
    sample.state ? note(`The group is ${sample.state}.`) : null);
}
