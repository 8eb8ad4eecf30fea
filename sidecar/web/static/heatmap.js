// The heat map: partitions × consumers at a time, and partitions over time, as pixels of one canvas.
// Rows that share a pixel show the hottest of them.

import { NO_OWNER, UNKNOWN, ratioOf } from "./history.js";

const MARGINS = {
  consumers: { left: 92, top: 88, right: 4, bottom: 32 }, // above: how full each consumer is
  time: { left: 172, top: 4, right: 4, bottom: 18 }, // beside: the owners and partitions
};
const OWNER_WIDTH = 84;
const BAR_GAP = 8;
const MIN_TEXT = { width: 74, height: 15 }; // of a cell that has room for its name

// Stops from dark blue to yellow, readable in light and dark and without telling red from green.
const STOPS = [[30, 48, 110], [38, 104, 150], [60, 154, 140], [170, 190, 70], [250, 170, 40], [225, 60, 40]];

export function colorOf(part) {
  const at = Math.min(1, Math.max(0, part)) * (STOPS.length - 1);
  const i = Math.min(STOPS.length - 2, Math.floor(at));
  return STOPS[i].map((low, k) => Math.round(low + (STOPS[i + 1][k] - low) * (at - i)));
}

// The place of a load on the scale, which is the same for all groups and times: a quarter of a capacity is its middle.
const heatOf = (load) => Math.sqrt(ratioOf(load));

const pack = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

function parseColor(text) {
  const hex = text.trim().replace("#", "");
  const wide = hex.length === 3 ? [...hex].map((c) => c + c).join("") : hex;
  return [0, 2, 4].map((i) => parseInt(wide.slice(i, i + 2), 16));
}

export function readTheme(element) {
  const style = getComputedStyle(element);
  return (name) => style.getPropertyValue(`--${name}`).trim();
}

export class HeatMap {
  constructor(canvas) {
    this.canvas = canvas;
    this.cell = null; // {index, partition} that is pointed at
    this.view = "consumers";
  }

  // Draws `history` at a sample; returns the milliseconds that it took.
  draw(history, index, view) {
    const started = performance.now();
    this.history = history;
    this.index = index;
    this.view = view;
    this.#resize();
    if (view === "time") this.#layOutTime();
    else this.#layOutConsumers();
    this.#paint();
    return performance.now() - started;
  }

  #resize() {
    const { canvas } = this;
    this.pixels = window.devicePixelRatio || 1;
    const width = Math.round(canvas.clientWidth * this.pixels);
    const height = Math.round(canvas.clientHeight * this.pixels);
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const margin = Object.fromEntries(Object.entries(MARGINS[this.view]).map(([side, size]) => [side, Math.round(size * this.pixels)]));
    this.area = { x: margin.left, y: margin.top, w: width - margin.left - margin.right, h: height - margin.top - margin.bottom };
  }

  #readPalette() {
    const theme = readTheme(this.canvas);
    this.theme = theme;
    const palette = new Uint32Array(256);
    for (let load = 0; load < UNKNOWN; load += 1) palette[load] = pack(colorOf(heatOf(load)));
    palette[0] = pack(colorOf(0));
    palette[UNKNOWN] = pack(parseColor(theme("unknown")));
    this.empty = pack(parseColor(theme("empty")));
    return palette;
  }

  // Columns are consumers; a column's cells are its partitions, the largest first.
  #layOutConsumers() {
    const seats = this.history.seats(this.index);
    this.seats = seats;
    this.rows = seats.reduce((most, seat) => Math.max(most, seat.partitions.length), 1);
    this.columns = Math.max(1, seats.length);
    this.loadAt = (column, row) => {
      const partition = seats[column]?.partitions[row];
      return partition === undefined ? -1 : this.history.samples[this.index].loads[partition];
    };
  }

  // Columns are samples with loads; rows are partitions, in the order of their owners now.
  #layOutTime() {
    const { history } = this;
    const seats = history.seats(this.index);
    this.order = seats.flatMap((seat) => seat.partitions);
    let first = 0;
    this.blocks = seats.map((seat) => { // the rows of each owner
      const block = { owner: seat.owner, first, last: first + seat.partitions.length };
      first = block.last;
      return block;
    });
    const there = new Set(this.order);
    const { owners } = history.samples[this.index];
    for (let p = 0; p < owners.length; p += 1) if (!there.has(p)) this.order.push(p);
    this.times = history.samples.map((_, i) => i).filter((i) => history.samples[i].loads.length);
    this.rows = Math.max(1, this.order.length);
    this.columns = Math.max(1, this.times.length);
    this.loadAt = (column, row) => {
      const load = history.samples[this.times[column]]?.loads[this.order[row]];
      return load === undefined ? -1 : load;
    };
  }

  #paint() {
    const { area } = this;
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (area.w < 2 || area.h < 2) return;
    const palette = this.#readPalette();
    const image = context.createImageData(area.w, area.h);
    this.#fill(new Uint32Array(image.data.buffer), palette);
    context.putImageData(image, area.x, area.y);
    if (this.view === "consumers") this.#drawFills(context);
    this.#markMoves(context);
    this.#nameCells(context);
    this.#label(context);
    this.#outline(context);
  }

  // How full each consumer is: a bar of load ÷ capacity, with lines at the fill limit (`headroom`) and at the capacity.
  #drawFills(context) {
    const { x, y, w } = this.area;
    const base = y - BAR_GAP * this.pixels;
    const most = Math.max(1.15, ...this.seats.map((seat) => seat.fill));
    const height = (part) => (part / most) * (base - 8 * this.pixels);
    const { headroom } = this.history.samples[this.index];
    const room = w / this.columns;
    this.seats.forEach((seat, column) => {
      context.fillStyle = this.theme(seat.fill > 1 ? "late" : seat.fill > headroom + 0.005 ? "desired" : "running");
      context.fillRect(x + column * room, base - height(seat.fill), Math.max(1, room - (room >= 6 ? this.pixels : 0)), height(seat.fill));
    });
    context.fillStyle = this.theme("soft");
    context.strokeStyle = this.theme("soft");
    context.font = `${10 * this.pixels}px system-ui, sans-serif`;
    context.setLineDash([4 * this.pixels, 3 * this.pixels]);
    context.textAlign = "right";
    const apart = height(1) - height(headroom) >= 11 * this.pixels; // else the two texts would overlap
    const limits = [[1, "capacity 100 %", apart ? "middle" : "bottom"], [headroom, `fill limit ${Math.round(headroom * 100)} %`, apart ? "middle" : "top"]];
    for (const [part, text, baseline] of headroom < 1 ? limits : limits.slice(0, 1)) {
      context.beginPath();
      context.moveTo(x, base - height(part));
      context.lineTo(x + w, base - height(part));
      context.stroke();
      context.textBaseline = baseline;
      context.fillText(text, x - 6 * this.pixels, base - height(part));
    }
    context.setLineDash([]);
    context.textAlign = "left";
  }

  // The partitions' names in cells that have room for them.
  #nameCells(context) {
    if (this.view !== "consumers") return;
    const [, , width, height] = this.#box(0, 0);
    if (width < MIN_TEXT.width * this.pixels || height < MIN_TEXT.height * this.pixels) return;
    context.font = `${11 * this.pixels}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    const { loads } = this.history.samples[this.index];
    for (let column = 0; column < this.columns; column += 1) {
      (this.seats[column]?.partitions ?? []).forEach((partition, row) => {
        const [left, top] = this.#box(column, row);
        const dark = loads[partition] === UNKNOWN || heatOf(loads[partition]) > 0.3;
        context.fillStyle = dark ? "#10161d" : "#fff";
        context.save();
        context.beginPath();
        context.rect(left, top, width - 4, height);
        context.clip();
        context.fillText(this.#fitName(context, partition, width - 10 * this.pixels), left + 5 * this.pixels, top + height / 2);
        context.restore();
      });
    }
  }

  // A partition's name and load; the load alone where both do not fit.
  #fitName(context, partition, room) {
    const load = formatRatioShort(this.history.samples[this.index].loads[partition]);
    const text = `${this.history.label(partition)}  ${load}`;
    return context.measureText(text).width <= room ? text : load;
  }

  #fill(pixels, palette) {
    const { w, h } = this.area;
    const gapX = w / this.columns >= 6 ? Math.round(this.pixels) : 0;
    const gapY = h / this.rows >= 6 ? Math.round(this.pixels) : 0;
    for (let column = 0; column < this.columns; column += 1) {
      const x0 = Math.floor((column * w) / this.columns);
      const x1 = Math.max(x0 + 1, Math.floor(((column + 1) * w) / this.columns) - gapX);
      this.#fillColumn(pixels, palette, column, x0, x1, gapY);
    }
  }

  #fillColumn(pixels, palette, column, x0, x1, gap) {
    const { w, h } = this.area;
    const { rows } = this;
    const tall = rows <= h;
    for (let line = 0; line < (tall ? rows : h); line += 1) {
      const y0 = tall ? Math.floor((line * h) / rows) : line;
      const y1 = tall ? Math.max(y0 + 1, Math.floor(((line + 1) * h) / rows) - gap) : line + 1;
      const load = tall ? this.loadAt(column, line) : this.#hottestOf(column, line, h);
      const color = load < 0 ? this.empty : palette[load];
      for (let y = y0; y < y1; y += 1) pixels.fill(color, y * w + x0, y * w + x1);
    }
  }

  #hottestOf(column, line, h) {
    let most = -1;
    const end = Math.max(Math.floor((line * this.rows) / h) + 1, Math.floor(((line + 1) * this.rows) / h));
    for (let row = Math.floor((line * this.rows) / h); row < end; row += 1) {
      const load = this.loadAt(column, row);
      if (most < 0 || (load !== UNKNOWN && load > most)) most = load;
    }
    return most;
  }

  #box(column, row) {
    const { x, y, w, h } = this.area;
    const left = Math.floor((column * w) / this.columns);
    const top = Math.floor((row * h) / this.rows);
    return [x + left, y + top, Math.max(2, w / this.columns - 1), Math.max(2, h / this.rows - 1)];
  }

  // By consumer, the partitions that have just come are outlined; over time, each change of owner is.
  #markMoves(context) {
    const outlines = new Path2D();
    this.marks = 0;
    for (const [column, row] of this.#listMoves()) {
      const [left, top, width, height] = this.#box(column, row);
      if (width >= 4 && height >= 4) outlines.rect(left + 0.5, top + 0.5, width - 1, height - 1);
      else outlines.rect(left, top, Math.max(1, width / 2), 1);
      this.marks += 1;
    }
    context.strokeStyle = this.theme("outline");
    context.lineWidth = Math.max(1, this.pixels);
    context.stroke(outlines);
  }

  * #listMoves() {
    if (this.view === "time") {
      const rowOf = new Map(this.order.map((p, row) => [p, row]));
      for (let column = 0; column < this.times.length; column += 1) {
        for (const move of this.history.moves(this.times[column])) {
          if (rowOf.has(move.partition)) yield [column, rowOf.get(move.partition)];
        }
      }
      return;
    }
    const moved = new Set(this.history.moves(this.index).map((m) => m.partition));
    if (!moved.size) return;
    for (let column = 0; column < this.seats.length; column += 1) {
      for (let row = 0; row < this.seats[column].partitions.length; row += 1) {
        if (moved.has(this.seats[column].partitions[row])) yield [column, row];
      }
    }
  }

  #label(context) {
    const { x, y, w, h } = this.area;
    context.fillStyle = this.theme("soft");
    context.font = `${11 * this.pixels}px system-ui, sans-serif`;
    context.textBaseline = "top";
    if (this.view === "time") {
      this.#labelTimes(context);
      this.#labelOwners(context);
      return;
    }
    const room = w / this.columns;
    const every = Math.ceil((60 * this.pixels) / room);
    for (let column = 0; column < this.seats.length; column += every) {
      const seat = this.seats[column];
      context.save();
      context.beginPath();
      context.rect(x + column * room, y + h, room * every - 6, 32 * this.pixels);
      context.clip();
      context.fillText(this.history.consumer(seat.owner), x + column * room, y + h + 4);
      context.fillText(`${Math.round(seat.fill * 100)} %`, x + column * room, y + h + 4 + 13 * this.pixels);
      context.restore();
    }
  }

  #labelOwners(context) {
    const { x, y, h } = this.area;
    context.textBaseline = "middle";
    context.textAlign = "left";
    this.#labelRows(context);
    let free = 0; // labels do not overlap
    for (const { owner, first, last } of this.blocks) {
      const top = y + (first * h) / this.rows;
      const middle = (top + y + (last * h) / this.rows) / 2;
      context.fillStyle = this.theme("line");
      context.fillRect(0, top, x, this.pixels);
      if (middle < free) continue;
      free = middle + 13 * this.pixels;
      context.fillStyle = this.theme("soft");
      context.save();
      context.beginPath();
      context.rect(0, middle - 8 * this.pixels, OWNER_WIDTH * this.pixels, 16 * this.pixels);
      context.clip();
      context.fillText(this.history.consumer(owner), 0, middle);
      context.restore();
    }
  }

  // The names of the rows' partitions, where rows are high enough for text.
  #labelRows(context) {
    const { x, y, h } = this.area;
    const height = h / this.rows;
    if (height < MIN_TEXT.height * this.pixels) return;
    context.save();
    context.beginPath();
    context.rect(OWNER_WIDTH * this.pixels, 0, x - OWNER_WIDTH * this.pixels, y + h);
    context.clip();
    context.fillStyle = this.theme("soft");
    context.textAlign = "right";
    this.order.forEach((partition, row) => context.fillText(this.history.label(partition), x - 6 * this.pixels, y + (row + 0.5) * height));
    context.restore();
  }

  #labelTimes(context) {
    const { x, y, w, h } = this.area;
    const names = [0, this.times.length - 1].map((column) => this.times[column]).filter((i) => i !== undefined);
    names.forEach((sample, end) => {
      context.textAlign = end ? "right" : "left";
      context.fillText(formatTime(this.history.samples[sample].t), end ? x + w : x, y + h + 4);
    });
    context.textAlign = "left";
    const column = this.times.indexOf(this.index);
    if (column < 0) return;
    context.fillStyle = this.theme("accent");
    context.fillRect(x + ((column + 0.5) * w) / this.columns, y, Math.max(1, this.pixels), h);
  }

  #outline(context) {
    if (!this.cell) return;
    const [left, top, width, height] = this.#box(this.cell.column, this.cell.row);
    context.strokeStyle = this.theme("outline");
    context.lineWidth = 2 * this.pixels;
    context.strokeRect(left - 1, top - 1, Math.max(width, 4) + 2, Math.max(height, 4) + 2);
  }

  pointAt(offsetX, offsetY) {
    const column = Math.floor(((offsetX * this.pixels - this.area.x) * this.columns) / this.area.w);
    const row = Math.floor(((offsetY * this.pixels - this.area.y) * this.rows) / this.area.h);
    return this.select(column, row);
  }

  step(columns, rows) {
    const from = this.cell ?? { column: 0, row: 0 };
    const delta = this.cell ? [columns, rows] : [0, 0];
    return this.select(from.column + delta[0], from.row + delta[1]);
  }

  // Selects a cell inside the map; returns its description, or null outside.
  select(column, row) {
    if (column < 0 || row < 0 || column >= this.columns || row >= this.rows) return null;
    const rows = this.view === "time" ? this.rows : this.seats[column]?.partitions.length ?? 0;
    if (!rows) return null;
    this.cell = { column, row: Math.min(row, rows - 1) };
    return this.describe();
  }

  describe() {
    const { column, row } = this.cell;
    const index = this.view === "time" ? this.times[column] : this.index;
    const partition = this.view === "time" ? this.order[row] : this.seats[column].partitions[row];
    return describeCell(this.history, index, partition);
  }
}

const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };

// A time of the browser's zone, with its name; an axis has room for it once (`formatClock`).
export const formatTime = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { ...CLOCK, timeZoneName: "short" });
export const formatClock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], CLOCK);

function formatRatioShort(load) {
  return load === UNKNOWN ? "?" : `${Math.round(ratioOf(load) * 100)} %`;
}

export function formatRatio(load) {
  if (load === UNKNOWN || load === undefined) return "unknown load";
  const percent = ratioOf(load) * 100;
  return `${percent >= 10 ? percent.toFixed(0) : percent.toFixed(1)} % of a consumer's capacity`;
}

export function describeCell(history, index, partition) {
  const sample = history.samples[index];
  const owner = sample.owners[partition];
  const head = `${history.label(partition)} at ${history.consumer(owner)}: ${formatRatio(sample.loads[partition])}`;
  const move = history.moves(index).find((one) => one.partition === partition);
  if (!move) return `${head}, ${formatTime(sample.t)}.`;
  const from = move.source === NO_OWNER ? "was without a consumer" : `came from ${history.consumer(move.source)}`;
  return `${head}, ${formatTime(sample.t)}; ${from}: ${history.reason(index, partition)}.`;
}
