// The time line: replicas running, desired and recommended, lateness, and a mark for each decision.

import { formatBytes, formatDuration } from "./format.js";
import { formatClock, formatTime, readTheme } from "./heatmap.js";
import { DASHES, prepareCanvas } from "./step_chart.js";
import { isDecision } from "./history.js";

const MARGIN = { left: 34, right: 62, top: 26, bottom: 46 };
const TICKS_S = [10, 30, 60, 120, 300, 600, 900];
const MIN_TICK_WIDTH = 90;
const MARK_WIDTH = 11;
export const REPLICAS = [ // colour, metric, text, style of the line
  ["recommended", "recommended_replicas", "needed by the load", "dotted"],
  ["desired", "desired_replicas", "wanted, after limits and windows", "dashed"],
  ["running", "running_replicas", "running", "solid"],
];

const SHAPES = { // of a mark, from its middle on top
  up: [[0, 0], [-5, 10], [5, 10]],
  down: [[-5, 0], [5, 0], [0, 10]],
  other: [[0, 0], [5, 5], [0, 10], [-5, 5]],
};
const UP = new Set(["scale-up", "replace", "surge"]);
const DOWN = new Set(["drain", "stop", "retry-drain"]);

function drawMark(context, action, x, y) {
  const shape = SHAPES[UP.has(action) ? "up" : DOWN.has(action) ? "down" : "other"];
  context.beginPath();
  for (const [dx, dy] of shape) context.lineTo(x + dx, y + dy);
  context.fill();
}

// What is drawn as lateness: with a freshness objective the estimated p99, else the late backlog.
export function describeLateness(history) {
  const slo = history.last.metrics.freshness_slo_s;
  if (slo) return { title: "freshness, p99", key: "p99_freshness_s", format: formatDuration, threshold: slo };
  return { title: "late backlog", key: "overdue_backlog_bytes", format: formatBytes, threshold: 0 };
}

// The next of 1, 2, 4, 10, 20, ...: its half is a round number, too.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 2, 4].find((step) => step * power >= value) ?? 10);
}

export class TimeLine {
  constructor(canvas) {
    this.canvas = canvas;
  }

  draw(history, index) {
    const { canvas } = this;
    this.context = prepareCanvas(canvas);
    const { clientWidth: width, clientHeight: height } = canvas;
    this.theme = readTheme(canvas);
    this.history = history;
    this.area = { x: MARGIN.left, y: MARGIN.top, w: width - MARGIN.left - MARGIN.right, h: height - MARGIN.top - MARGIN.bottom };
    if (!history.samples.length || this.area.w < 10) return;
    this.#drawSeries(index);
  }

  #drawSeries(index) {
    const { samples } = this.history;
    this.from = samples[0].t;
    this.to = Math.max(this.from + 60, this.history.last.until);
    const counts = samples.flatMap((s) => REPLICAS.map(([, key]) => s.metrics[key] ?? 0));
    this.mostReplicas = Math.max(2, ...counts.map((n) => n + 1));
    this.lateness = describeLateness(this.history);
    this.mostLate = Math.max(this.lateness.threshold, ...samples.map((s) => s.metrics[this.lateness.key] ?? 0));
    this.scaleLate = this.mostLate > 0 ? roundUp(this.mostLate) : 1;
    this.#drawAxes();
    this.#drawLateness();
    for (const [name, key, , style] of REPLICAS) this.#drawSteps(key, this.theme(name), style);
    this.#drawMarks(index);
  }

  x(time) {
    return this.area.x + ((time - this.from) * this.area.w) / (this.to - this.from);
  }

  y(part) {
    return this.area.y + this.area.h * (1 - part);
  }

  #drawAxes() {
    const { context, area } = this;
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = this.theme("soft");
    context.strokeStyle = this.theme("line");
    context.lineWidth = 1;
    context.textBaseline = "middle";
    const step = Math.max(1, Math.ceil(this.mostReplicas / 5));
    for (let n = 0; n <= this.mostReplicas; n += step) {
      const y = Math.round(this.y(n / this.mostReplicas)) + 0.5;
      context.beginPath();
      context.moveTo(area.x, y);
      context.lineTo(area.x + area.w, y);
      context.stroke();
      context.textAlign = "right";
      context.fillText(String(n), area.x - 6, y);
    }
    this.#drawLatenessAxis();
    this.#drawTimes();
  }

  #drawLatenessAxis() {
    const { context, area } = this;
    const { title, format, threshold } = this.lateness;
    const right = area.x + area.w;
    context.textAlign = "left";
    context.fillText("consumers", 0, 8);
    context.fillStyle = this.theme("late");
    for (const part of this.mostLate > 0 ? [0, 0.5, 1] : [0]) context.fillText(format(part * this.scaleLate), right + 6, this.y(part));
    context.textAlign = "right";
    context.fillText(title, right + MARGIN.right, 8);
    if (!threshold) return;
    context.strokeStyle = this.theme("late");
    context.setLineDash(DASHES.dashed);
    context.beginPath();
    context.moveTo(area.x, this.y(threshold / this.scaleLate));
    context.lineTo(right, this.y(threshold / this.scaleLate));
    context.stroke();
    context.setLineDash([]);
  }

  #drawTimes() {
    const { context, area } = this;
    context.fillStyle = this.theme("soft");
    context.textBaseline = "top";
    context.textAlign = "center";
    const fits = (step) => (step * area.w) / (this.to - this.from) >= MIN_TICK_WIDTH;
    const step = TICKS_S.find(fits) ?? TICKS_S[TICKS_S.length - 1];
    for (let t = Math.ceil(this.from / step) * step; t <= this.to; t += step) {
      context.fillRect(Math.round(this.x(t)), area.y + area.h, 1, 4);
      context.fillText(formatClock(t), this.x(t), area.y + area.h + 30);
    }
  }

  #drawLateness() {
    const { context } = this;
    context.beginPath();
    let started = false;
    for (const sample of this.history.samples) {
      const late = sample.metrics[this.lateness.key];
      if (late === undefined) continue;
      if (!started) context.moveTo(this.x(sample.t), this.y(0));
      started = true;
      context.lineTo(this.x(sample.t), this.y(late / this.scaleLate));
      this.lastLate = sample.until;
    }
    if (!started) return;
    context.lineTo(this.x(this.lastLate), this.y(0));
    context.fillStyle = this.theme("late");
    context.globalAlpha = 0.35;
    context.fill();
    context.globalAlpha = 1;
  }

  #drawSteps(key, color, style) {
    const { context } = this;
    context.strokeStyle = color;
    context.lineWidth = style === "solid" ? 2.5 : 1.5;
    context.setLineDash(DASHES[style]);
    context.beginPath();
    let previous = null;
    for (const sample of this.history.samples) {
      const value = sample.metrics[key];
      if (value === undefined) continue;
      const y = this.y(value / this.mostReplicas);
      if (previous === null) context.moveTo(this.x(sample.t), y);
      else {
        context.lineTo(this.x(sample.t), previous);
        context.lineTo(this.x(sample.t), y);
      }
      context.lineTo(this.x(sample.until), y);
      previous = y;
    }
    context.stroke();
    context.setLineDash([]);
  }

  #drawMarks(index) {
    const { context, area } = this;
    const y = area.y + area.h + 4;
    let [free, row] = [0, 0]; // the steps of one decision follow each other closely: their marks alternate between two rows
    this.history.samples.forEach((sample, i) => {
      if (!isDecision(this.history.samples, i)) return;
      const x = this.x(sample.t);
      context.fillStyle = sample.failure ? this.theme("late") : this.theme("mark");
      row = x < free ? 1 - row : 0;
      free = x + MARK_WIDTH;
      drawMark(context, sample.action, x, y + row * MARK_WIDTH);
    });
    const chosen = this.x(this.history.samples[index].t);
    context.fillStyle = this.theme("accent");
    context.fillRect(chosen - 1, area.y - 6, 2, area.h + 32);
    context.beginPath();
    context.arc(chosen, area.y - 5, 4, 0, 7);
    context.fill();
  }

  // The sample at a place; a decision within a few pixels has the right of way.
  sampleAt(offsetX) {
    const { samples } = this.history;
    const distance = (i) => Math.abs(this.x(samples[i].t) - offsetX);
    const near = this.history.decisions().filter((i) => distance(i) <= 6);
    const candidates = near.length ? near : samples.map((_, i) => i);
    return candidates.reduce((best, i) => (distance(i) < distance(best) ? i : best), candidates[0]);
  }
}
