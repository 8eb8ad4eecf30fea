// What the sidecar computes on demand: what if, and the doctor's checks.

import { element, formatCount, formatDuration, formatPercent, legendKey, line, note, replaceContent, table } from "./format.js";
import { formatTime } from "./heatmap.js";
import { SERIES, StepChart } from "./step_chart.js";

const POLL_MS = 400;
const FIELDS = ["lambda", "headroom", "min", "max", "heuristic"];
const RANGES = ["lambda", "headroom"];
const byId = (id) => document.getElementById(id);
const pause = () => new Promise((resume) => setTimeout(resume, POLL_MS));

export class WhatIf {
  constructor(ask) {
    this.ask = ask;
    this.turn = 0; // of the newest question
    this.chart = null;
    for (const name of RANGES) {
      byId(`${name}-range`).addEventListener("input", () => { byId(name).value = byId(`${name}-range`).value; });
      byId(name).addEventListener("input", () => { byId(`${name}-range`).value = byId(name).value; });
    }
    byId("heuristic").addEventListener("change", () => this.#showTuning());
    byId("what-if-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.simulate();
    });
    byId("what-if-form").addEventListener("reset", (event) => {
      event.preventDefault();
      this.#fill();
    });
  }

  async open() {
    const { present } = await this.ask("/what-if", {});
    if (!present) return byId("what-if").remove(); // this server simulates nothing
    this.present = present;
    byId("heuristic").replaceChildren(...present.heuristics.map((name) => element("option", { value: name }, name)));
    return this.#fill();
  }

  #fill() {
    for (const name of FIELDS) byId(name).value = this.present[name];
    for (const name of RANGES) byId(`${name}-range`).value = this.present[name];
    this.#showTuning();
    byId("what-if-status").textContent = "Change a setting and simulate: the recorded time, once with the present settings, once with yours.";
  }

  #showTuning() {
    const tuned = byId("heuristic").value === "steady";
    for (const id of ["lambda", "lambda-range"]) byId(id).disabled = !tuned;
  }

  #question() {
    const query = { startup: byId("startup").value, asked: String(Date.now()) };
    for (const name of FIELDS) {
      if (!byId(name).disabled && String(byId(name).value) !== String(this.present[name])) query[name] = byId(name).value;
    }
    return query;
  }

  async simulate() {
    this.turn += 1;
    byId("what-if-progress").hidden = false;
    try {
      await this.#follow(this.turn, this.#question());
    } catch {
      byId("what-if-progress").hidden = true;
      byId("what-if-status").textContent = "The sidecar does not answer; try again.";
      byId("what-if-status").className = "bad";
    }
  }

  async #follow(turn, question) {
    const progress = byId("what-if-progress");
    for (;;) {
      const answer = await this.ask("/what-if", question);
      if (turn !== this.turn) return;
      if (answer.state !== "running") {
        progress.hidden = true;
        this.#show(answer, question);
        return;
      }
      progress.value = answer.progress;
      byId("what-if-status").textContent = `simulating: ${formatPercent(answer.progress)}`;
      await pause();
    }
  }

  #show(answer, question) {
    const failed = answer.state === "failed";
    byId("what-if-status").className = failed ? "bad" : "";
    if (failed) {
      byId("what-if-status").textContent = answer.error;
      return;
    }
    const names = FIELDS.filter((name) => name in question).map((name) => `${name === "lambda" ? "λ" : name} = ${question[name]} (now ${formatSetting(this.present[name])})`);
    byId("what-if-status").textContent = summarize(names.join(", ") || "No change", answer);
    const canvas = element("canvas", { id: "what-if-chart", role: "img", "aria-label": "consumers over the recorded time" });
    replaceContent("what-if-result",
      element("div", {}, costTable(answer), line(judgeEffects(answer), { id: "what-if-check" }), explainMoves(this.present, question, answer),
        describeAssumptions(answer), ...settingsBlock(answer.settings)),
      element("div", {}, legend(), canvas));
    this.chart = new StepChart(canvas, answer);
    this.chart.draw();
  }

  draw() {
    this.chart?.draw();
  }
}

const formatSetting = (value) => (typeof value === "number" ? String(Number(value.toPrecision(3))) : value);
const signed = (difference, digits, unit = "") => `${difference > 0 ? "+" : difference < 0 ? "−" : ""}${Math.abs(difference).toFixed(digits)}${unit === PERCENT ? POINTS : unit}`;
const PERCENT = "\u00a0%";
const POINTS = "\u00a0points"; // a difference of percentages
const SECONDS = "\u00a0s";
const COSTS = [ // what is compared: key, name, digits, unit
  ["consumer_hours", "consumer-hours", 2, ""],
  ["late_percent", "traffic that is late", 2, PERCENT],
  ["late_time_percent", "time with something late", 2, PERCENT],
  ["moves", "moves", 0, ""],
  ["moved_consumers", "moved load, in consumers (R done)", 2, ""],
  ["rebalances", "rebalances", 0, ""],
  ["worst_lag_s", "longest wait until read", 0, SECONDS],
];

export function summarize(change, { recorded, present, changed }) {
  const hours = (one) => one.consumer_hours.toFixed(2);
  const part = present.consumer_hours ? ` (${signed(100 * (changed.consumer_hours / present.consumer_hours - 1), 0)}${PERCENT})` : "";
  return `${change}: ${hours(changed)} consumer-hours instead of ${hours(present)}${part}, ${formatCount(changed.moves, "move")} instead of ${present.moves}, `
    + `and ${changed.late_percent.toFixed(2)}${PERCENT} of the traffic late instead of ${present.late_percent.toFixed(2)}${PERCENT}: `
    + `the recorded ${formatDuration(recorded.seconds)}, simulated with both settings.`;
}

// The differences as they are shown: the effect of the change, and how far the simulation is from the record.
function compareCosts({ recorded, present, changed }) {
  return COSTS.map(([key, name, digits, unit]) => {
    const [was, is] = [present[key], changed[key]].map((value) => Number(value.toFixed(digits)));
    const truth = recorded[key] === undefined ? null : Number(recorded[key].toFixed(digits));
    return { name, digits, unit, was, is, truth, effect: is - was, error: truth === null ? null : was - truth };
  });
}

function costTable(answer) {
  const rows = compareCosts(answer).map(({ name, digits, unit, was, is, truth, effect, error }) => {
    const show = (value) => `${value.toFixed(digits)}${unit}`;
    return [name, show(was), show(is), signed(effect, digits, unit), truth === null ? "–" : show(truth), error === null ? "–" : signed(error, digits, unit)];
  });
  return table("Cost of the recorded time, and a check of the simulation",
    ["", "#present settings, simulated", "#yours, simulated", "#effect: yours − present", "#recorded", "#error: simulated − recorded"], rows);
}

// An effect is told apart from the simulation's error only where it is larger.
export function judgeEffects(answer) {
  const compared = compareCosts(answer).filter((one) => one.error !== null);
  const describe = (one) => `${one.name} (effect ${signed(one.effect, one.digits, one.unit)}, error ${signed(one.error, one.digits, one.unit)})`;
  const lost = compared.filter((one) => one.effect !== 0 && Math.abs(one.effect) <= Math.abs(one.error));
  const unchecked = compareCosts(answer).filter((one) => one.error === null).map((one) => one.name);
  const check = "The effect compares two simulations. The error is what the simulation of the present settings misses of the record.";
  const weak = lost.length ? `Do not rely on effects no larger than the error: ${lost.map(describe).join(", ")}.` : "No effect is smaller than its error.";
  return `${check} ${weak}${unchecked.length ? ` Not recorded, so not checked: ${unchecked.join(", ")}.` : ""}`;
}

// λ and the moves often rise together, which surprises.
function explainMoves(present, question, { present: before, changed }) {
  const higher = Number(question.lambda) - present.lambda;
  if (!((changed.moves - before.moves) * higher > 0)) return null;
  return note("Why can a higher λ move more? λ prices the load moved by each decision, not the sum over the time: what it avoids to move "
    + "now, or moves to another place, may make a consumer too full later, which costs more decisions and more, smaller moves.");
}

function describeAssumptions({ recorded, assumed }) {
  return note(`${formatDuration(recorded.seconds)} recorded from ${formatTime(recorded.begin)}, ${formatCount(recorded.partitions, "partition")}. Assumed: `
    + `a consumer starts in ${formatDuration(assumed.startup)}, a move pauses ${formatDuration(assumed.pause)}, a byte is late after ${formatDuration(assumed.late)}.`);
}

function settingsBlock(lines) {
  if (!lines.length) return [];
  const text = lines.join("\n");
  const copy = element("button", { type: "button", onclick: () => copyText(copy, text) }, "Copy as settings");
  return [element("h3", {}, "As settings of the sidecar"), element("pre", { id: "what-if-settings", tabindex: "0" }, text), copy];
}

async function copyText(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch { // without HTTPS a browser has no clipboard
    getSelection().selectAllChildren(byId("what-if-settings"));
    button.textContent = "Selected: press Ctrl+C";
  }
}

const legend = () => element("p", { class: "legend" }, ...SERIES.map(([, color, , style, text]) => legendKey(color, style, text)));

const MARKS = { failed: "✕ failed", warning: "▲ warning", note: "– note", ok: "✓ ok", skipped: "– skipped" };
const ORDER = Object.keys(MARKS);

export class Doctor {
  constructor(ask) {
    this.ask = ask;
    byId("doctor-run").addEventListener("click", () => this.run(true));
  }

  async run(again) {
    let answer = await this.ask("/doctor", again ? { again: "1" } : {});
    while (answer.running) {
      byId("doctor-status").textContent = "checking";
      await pause();
      answer = await this.ask("/doctor", {});
    }
    if (!answer.findings) return byId("doctor-run").remove(); // this server checks nothing
    return this.#show(answer);
  }

  #show({ findings, time }) {
    const count = (level) => findings.filter((one) => one.level === level).length;
    byId("doctor-status").textContent = `${formatTime(time)}: ${count("failed")} of ${formatCount(findings.length, "check")} failed, ${formatCount(count("warning"), "warning")}`;
    byId("doctor-status").className = count("failed") ? "bad" : "";
    const sorted = [...findings].sort((a, b) => ORDER.indexOf(a.level) - ORDER.indexOf(b.level));
    const list = (found) => table("Findings of the doctor", ["", "check", "finding"], found.map((one) => [
      element("span", { class: { failed: "hot", warning: "hot", ok: "good" }[one.level] ?? "note" }, MARKS[one.level] ?? one.level),
      one.check, element("div", {}, one.message, one.remedy ? line(`→ ${one.remedy}`) : null),
    ]));
    const [good, told] = [true, false].map((is) => sorted.filter((one) => (one.level === "ok") === is));
    replaceContent("doctor", told.length ? list(told) : null,
      good.length ? element("details", {}, element("summary", {}, `${formatCount(good.length, "check")} ok`), list(good)) : null);
  }
}
