// The time line: replicas running, desired and recommended, lateness, and a mark for each decision.

import { formatTime, readTheme } from "./heatmap.js";
import { isDecision } from "./history.js";

const MARGIN = { left: 34, right: 46, top: 8, bottom: 34 };
export const REPLICAS = [
  ["recommended", "recommended_replicas", "needed by the load"],
  ["desired", "desired_replicas", "wanted, after limits and windows"],
  ["running", "running_replicas", "running"],
];

// Seconds late: the estimated p99 of freshness where it is measured, else the backlog in seconds of reading.
export function lateness(sample) {
  const m = sample.metrics;
  if (m.p99_freshness_s !== undefined) return m.p99_freshness_s;
  if (m.overdue_backlog_bytes === undefined || !sample.capacity) return null;
  return m.overdue_backlog_bytes / (sample.capacity * Math.max(1, m.running_replicas ?? 1));
}

export class TimeLine {
  constructor(canvas) {
    this.canvas = canvas;
  }

  draw(history, index) {
    const { canvas } = this;
    const scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      Object.assign(canvas, { width: Math.round(width * scale), height: Math.round(height * scale) });
    }
    this.context = canvas.getContext("2d");
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.context.clearRect(0, 0, width, height);
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
    this.mostLate = Math.max(10, ...samples.map((s) => lateness(s) ?? 0)) * 1.1;
    this.#drawAxes();
    this.#drawLateness();
    for (const [name, key] of REPLICAS) this.#drawSteps(key, this.theme(name), name === "running" ? 2.5 : 1.5, name);
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
    context.textAlign = "left";
    context.fillText(`${Math.round(this.mostLate)} s`, area.x + area.w + 6, this.y(1) + 4);
    context.fillText("0 s", area.x + area.w + 6, this.y(0));
    context.textBaseline = "top";
    context.fillText(formatTime(this.from), area.x, area.y + area.h + 18);
    context.textAlign = "right";
    context.fillText(formatTime(this.to), area.x + area.w, area.y + area.h + 18);
  }

  #drawLateness() {
    const { context } = this;
    context.beginPath();
    let started = false;
    for (const sample of this.history.samples) {
      const late = lateness(sample);
      if (late === null) continue;
      if (!started) context.moveTo(this.x(sample.t), this.y(0));
      started = true;
      context.lineTo(this.x(sample.t), this.y(late / this.mostLate));
      this.lastLate = sample.until;
    }
    if (!started) return;
    context.lineTo(this.x(this.lastLate), this.y(0));
    context.fillStyle = this.theme("late");
    context.globalAlpha = 0.35;
    context.fill();
    context.globalAlpha = 1;
  }

  #drawSteps(key, color, width, name) {
    const { context } = this;
    context.strokeStyle = color;
    context.lineWidth = width;
    context.setLineDash({ recommended: [2, 3], desired: [6, 3], running: [] }[name]);
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
    this.history.samples.forEach((sample, i) => {
      if (!isDecision(this.history.samples, i)) return;
      const x = this.x(sample.t);
      context.fillStyle = sample.failure ? this.theme("late") : this.theme("mark");
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(x - 5, y + 10);
      context.lineTo(x + 5, y + 10);
      context.fill();
    });
    context.fillStyle = this.theme("accent");
    context.fillRect(this.x(this.history.samples[index].t) - 0.75, area.y, 1.5, area.h + 14);
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
