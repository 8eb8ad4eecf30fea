// The page: follows the sidecar's events, and shows the history at one time, by default now.

import { showAnswers } from "./answers.js";
import { Unauthorized, authorize, follow } from "./events.js";
import { element, formatCount, legendKey, replaceContent } from "./format.js";
import { HeatMap, colorOf, formatTime } from "./heatmap.js";
import { GroupHistory } from "./history.js";
import { decisionStep, showBehind, showConditions, showDecision, showHandovers, showHottest, showMoves, showTopics } from "./panels.js";
import { REPLICAS, TimeLine, describeLateness } from "./timeline.js";
import { Doctor, WhatIf } from "./tools.js";

const TOKEN_KEY = "trimtab-token"; // in this tab only
const GROUP_PARAMETER = "group";
const byId = (id) => document.getElementById(id);
const HELP = {
  consumers: "A column is a consumer, a cell one of its partitions, the largest on top. Outlined: it moved here at this time. "
    + "The bar above is the consumer's load: blue is within the fill limit, orange above it, red above the capacity.",
  time: "A row is a partition, ordered by its owner at the chosen time; a column is a time. Outlined: it changed its owner.",
};
const RESTORED = " From before the sidecar's start, as recorded then, every minute or five.";

class Page {
  constructor() {
    this.heatMap = new HeatMap(byId("heatmap"));
    this.timeLine = new TimeLine(byId("timeline"));
    this.index = -1; // of the sample shown
    this.live = true;
    this.view = "consumers";
    this.measured = { draw_ms: [], update_ms: [] };
    this.whatIf = new WhatIf(ask);
    this.doctor = new Doctor(ask);
    this.#listen();
  }

  handle(name, data) {
    const started = performance.now();
    if (name === "history") this.#open(new GroupHistory(data));
    else this.#append(data);
    if (name === "sample") this.measured.update_ms.push(performance.now() - started);
  }

  #open(history) {
    const time = this.live ? null : this.history?.samples[this.index]?.t;
    this.history = history;
    byId("group").textContent = history.group;
    document.title = `${history.group} · Trimtab`;
    if (history.samples.length) drawTimeLegend(history);
    this.heatMap.cell = null;
    const found = time === null || time === undefined ? -1 : history.samples.findIndex((s) => s.until >= time);
    this.show(found < 0 ? history.samples.length - 1 : found);
  }

  #append(raw) {
    const shown = this.history.samples[this.index];
    this.history.append(raw);
    if (this.live) this.show(this.history.samples.length - 1);
    else this.show(Math.max(0, this.history.samples.indexOf(shown)));
  }

  show(index) {
    this.index = index;
    if (index < 0) return this.report("no iteration yet");
    const { history } = this;
    this.report("");
    this.draw();
    showConditions(history, index);
    showAnswers(history, index);
    showDecision(history, index, (i) => this.choose(i));
    showMoves(history, index);
    showBehind(history, index);
    showHottest(history, index);
    showHandovers(history, index);
    showTopics(history, index);
    return undefined;
  }

  draw() {
    if (this.index < 0) return;
    this.timeLine.draw(this.history, this.index);
    this.measured.draw_ms.push(this.heatMap.draw(this.history, this.index, this.view));
    const sample = this.history.samples[this.index];
    const slider = byId("timeline");
    slider.setAttribute("aria-valuemax", String(this.history.samples.length - 1));
    slider.setAttribute("aria-valuenow", String(this.index));
    slider.setAttribute("aria-valuetext", `${formatTime(sample.t)}, ${formatCount(sample.metrics.running_replicas, "consumer")}, ${sample.action}`);
    byId("map-help").textContent = sample.loads.length ? `${HELP[this.view]}${sample.n ? "" : RESTORED}`
      : "This decision is from before the sidecar's start: its partitions are not recorded.";
  }

  // Shows a sample; the newest one is followed.
  choose(index) {
    const last = this.history.samples.length - 1;
    const chosen = Math.min(last, Math.max(0, index));
    this.live = chosen === last;
    byId("live").setAttribute("aria-pressed", String(this.live));
    this.heatMap.cell = null;
    this.show(chosen);
  }

  report(problem) {
    const sample = this.history?.samples[this.index];
    const when = sample ? `${this.live ? "now, " : "shown: "}${formatTime(sample.t)}` : "";
    byId("status").textContent = [when, problem].filter(Boolean).join(": ");
    byId("status").className = problem ? "bad" : "";
    for (const mark of document.querySelectorAll(".as-of")) mark.textContent = sample && !this.live ? ` at ${formatTime(sample.t)}` : "";
  }

  #listen() {
    byId("live").addEventListener("click", () => this.history && this.choose(this.history.samples.length - 1));
    for (const radio of document.querySelectorAll("input[name=view]")) {
      radio.addEventListener("change", () => {
        this.view = radio.value;
        this.heatMap.cell = null;
        this.draw();
      });
    }
    const timeline = byId("timeline");
    timeline.addEventListener("click", (event) => this.history && this.choose(this.timeLine.sampleAt(event.offsetX)));
    timeline.addEventListener("keydown", (event) => this.#stepTime(event));
    this.#listenToMap(byId("heatmap"));
    const redraw = () => {
      this.draw();
      this.whatIf.draw();
    };
    new ResizeObserver(redraw).observe(byId("heatmap"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  }

  #stepTime(event) {
    const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 };
    if (!this.history) return;
    if (event.key in steps) {
      const by = steps[event.key];
      this.choose(event.shiftKey ? decisionStep(this.history, this.index, by > 0) : this.index + by);
    } else if (event.key === "Home") this.choose(0);
    else if (event.key === "End") this.choose(this.history.samples.length - 1);
    else return;
    event.preventDefault();
  }

  #listenToMap(map) {
    const tell = (text) => {
      if (text === null) return;
      this.draw();
      byId("cell").textContent = text;
    };
    const point = (event) => this.index >= 0 && tell(this.heatMap.pointAt(event.offsetX, event.offsetY));
    let frame = 0;
    map.addEventListener("pointermove", (event) => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => point(event));
    });
    map.addEventListener("click", point);
    map.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      if (!(event.key in steps) || this.index < 0) return;
      tell(this.heatMap.step(...steps[event.key]));
      event.preventDefault();
    });
  }
}

function drawLegends() {
  const scale = byId("scale").getContext("2d");
  for (let x = 0; x < 140; x += 1) {
    scale.fillStyle = `rgb(${colorOf(x / 139).join(" ")})`;
    scale.fillRect(x, 0, 1, 10);
  }
}

function drawTimeLegend(history) {
  const { title, threshold } = describeLateness(history);
  const late = threshold ? `${title}; above the dashed line it misses the objective` : `${title}; anything above 0 is late`;
  replaceContent("time-legend", ...REPLICAS.map(([name, , text, style]) => legendKey(name, style, text)), legendKey("late", "area", late));
}

const token = () => sessionStorage.getItem(TOKEN_KEY);

// The address of a path for the group that the page's own address chooses.
function addressOf(path, query = {}) {
  const group = new URLSearchParams(location.search).get(GROUP_PARAMETER);
  const all = new URLSearchParams(group === null ? query : { ...query, [GROUP_PARAMETER]: group });
  return all.size ? `${path}?${all}` : path;
}

async function ask(path, query) {
  const response = await fetch(addressOf(path, query), { headers: authorize(token()), cache: "no-store" });
  if (response.status === 401) throw new Unauthorized();
  return response.ok ? response.json() : {};
}

// With several groups the page shows one, and a list to choose from.
async function openChooser() {
  const { groups = [] } = await ask("/groups", {});
  const names = groups.map((one) => one.group);
  const chosen = new URLSearchParams(location.search).get(GROUP_PARAMETER) ?? names[0];
  byId("groups").replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  byId("groups").value = chosen;
  byId("chooser").hidden = names.length < 2;
  byId("groups").addEventListener("change", () => {
    location.search = new URLSearchParams({ [GROUP_PARAMETER]: byId("groups").value });
  });
  if (names.length > 1 && !location.search) history.replaceState(null, "", `?${new URLSearchParams({ [GROUP_PARAMETER]: chosen })}`);
}

// Why there are no events: the group's settings are wrong, say.
async function explainAbsence() {
  const { groups = [], elsewhere = [] } = await ask("/groups", {});
  const chosen = byId("groups").value || new URLSearchParams(location.search).get(GROUP_PARAMETER);
  const error = groups.find((one) => one.group === chosen)?.error;
  if (elsewhere.includes(chosen)) return "another sidecar manages this group; ask its page";
  return error ? `this group is not managed: ${error}` : "the sidecar does not manage this group";
}

// On a small screen the sections below the answers open when they are asked for.
function foldSections() {
  for (const one of document.querySelectorAll("details.fold")) one.open = !matchMedia("(max-width: 40rem)").matches;
}

async function start() {
  drawLegends();
  foldSections();
  const page = new Page();
  window.trimtab = page; // for the console, and tests
  const login = byId("login");
  login.addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(TOKEN_KEY, byId("token").value);
    location.reload();
  });
  try {
    await openChooser();
    await page.whatIf.open();
    page.doctor.run(false).catch(() => {}); // the stream tells that the sidecar is away
    await follow(addressOf("/events"), token(), (name, data) => page.handle(name, data), (text) => page.report(text), explainAbsence);
  } catch (error) {
    if (!(error instanceof Unauthorized)) throw error;
    login.hidden = false;
    page.report("a token is required");
    byId("token").focus();
  }
}

start();
