// Consumers over the recorded time: recorded, and simulated with the present and with other settings.

import { formatTime, readTheme } from "./heatmap.js";

const MARGIN = { left: 30, right: 8, top: 8, bottom: 20 };
export const DASHES = { solid: [], dashed: [6, 3], dotted: [2, 3] }; // of a line, by the name that its legend's CSS has
export const SERIES = [ // name, colour, width, style, text
  ["present", "running", 2, "solid", "present settings, simulated"],
  ["changed", "desired", 2, "dashed", "yours, simulated"],
  ["recorded", "soft", 1.5, "dotted", "recorded"],
];

export function prepareCanvas(canvas) {
  const scale = window.devicePixelRatio || 1;
  const size = { width: Math.round(canvas.clientWidth * scale), height: Math.round(canvas.clientHeight * scale) };
  if (canvas.width !== size.width || canvas.height !== size.height) Object.assign(canvas, size);
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  context.font = "11px system-ui, sans-serif";
  return context;
}

export class StepChart {
  constructor(canvas, answer) {
    this.canvas = canvas;
    this.answer = answer;
  }

  draw() {
    const { canvas, answer } = this;
    const context = prepareCanvas(canvas);
    const theme = readTheme(canvas);
    const ticks = answer.recorded.seconds / answer.tick;
    const most = Math.max(2, ...SERIES.flatMap(([name]) => answer[name].changes.map(([, n]) => n + 1)));
    const w = canvas.clientWidth - MARGIN.left - MARGIN.right;
    const h = canvas.clientHeight - MARGIN.top - MARGIN.bottom;
    const x = (tick) => MARGIN.left + (tick / ticks) * w;
    const y = (n) => MARGIN.top + h * (1 - n / most);
    this.#drawAxes(context, theme, { x, y, most, ticks });
    for (const [name, color, width, style] of SERIES) {
      context.strokeStyle = theme(color);
      context.lineWidth = width;
      context.setLineDash(DASHES[style]);
      drawSteps(context, answer[name].changes, ticks, x, y);
    }
    context.setLineDash([]);
  }

  #drawAxes(context, theme, { x, y, most, ticks }) {
    context.strokeStyle = theme("line");
    context.fillStyle = theme("soft");
    context.textBaseline = "middle";
    context.textAlign = "right";
    const step = Math.max(1, Math.ceil(most / 5));
    for (let n = 0; n <= most; n += step) {
      context.beginPath();
      context.moveTo(x(0), y(n));
      context.lineTo(x(ticks), y(n));
      context.stroke();
      context.fillText(String(n), MARGIN.left - 6, y(n));
    }
    context.textBaseline = "top";
    const { begin, seconds } = this.answer.recorded;
    context.textAlign = "left";
    context.fillText(formatTime(begin), x(0), y(0) + 5);
    context.textAlign = "right";
    context.fillText(formatTime(begin + seconds), x(ticks), y(0) + 5);
  }
}

function drawSteps(context, changes, end, x, y) {
  context.beginPath();
  changes.forEach(([tick, n], i) => {
    if (i) context.lineTo(x(tick), y(n));
    else context.moveTo(x(tick), y(n));
    context.lineTo(x(changes[i + 1]?.[0] ?? end), y(n));
  });
  context.stroke();
}
