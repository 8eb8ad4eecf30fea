// Text of figures, and elements; every name comes in as text, never as HTML.
// A figure and its unit stay on one line.

const NBSP = "\u00a0";

export function element(name, props = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(props)) {
    if (key === "onclick") made.addEventListener("click", value);
    else if (value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const line = (text, props) => element("p", props, text);
export const note = (text) => line(text, { class: "note" });

export const replaceContent = (id, ...children) =>
  document.getElementById(id).replaceChildren(...children.filter((child) => child !== null));

export function formatBytes(bytes) {
  if (bytes === null || bytes === undefined) return "unknown";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let i = 0;
  for (; value >= 1000 && i < units.length - 1; i += 1) value /= 1000;
  return `${value >= 100 || i === 0 ? value.toFixed(0) : value.toPrecision(2)}${NBSP}${units[i]}`;
}

export const formatRate = (rate) => (rate === null || rate === undefined ? "unknown" : `${formatBytes(rate)}/s`);
export const formatPercent = (part) => (part === null || part === undefined ? "unknown" : `${Math.round(part * 100)}${NBSP}%`);
export const formatCount = (n, noun) => `${n ?? "?"}${NBSP}${noun}${n === 1 ? "" : "s"}`;

export function formatDuration(seconds) {
  if (seconds === null || seconds === undefined) return "not at this rate";
  if (seconds < 0.005) return `0${NBSP}s`;
  if (seconds < 1) return `${seconds.toFixed(2)}${NBSP}s`;
  if (seconds < 120) return `${seconds.toFixed(0)}${NBSP}s`;
  if (seconds < 7200) return `${(seconds / 60).toFixed(0)}${NBSP}min`;
  return `${(seconds / 3600).toFixed(1)}${NBSP}h`;
}

// Sorted durations: their median and the longest, or the one that all have.
export function formatPauses(sorted) {
  const [median, longest] = [sorted[Math.floor(sorted.length / 2)], sorted[sorted.length - 1]].map(formatDuration);
  return median === longest ? median : `${median} (median), at most ${longest}`;
}

// The moved load in consumers' capacities.
export const formatR = (rate, capacity) => (rate / capacity).toFixed(2);

// A legend's entry: a line as it is drawn, or an area.
export function legendKey(name, style, text) {
  const mark = element("span", { class: "key" });
  if (style === "area") Object.assign(mark.style, { background: `var(--${name})`, height: ".7em", opacity: ".45" });
  else mark.style.borderTop = `3px ${style} var(--${name})`; // CSSOM: the policy forbids style attributes, not this
  return element("span", {}, mark, text);
}

// A table of texts and elements; a heading that starts with "#" is a column of numbers; `chosen` is a row's index.
export function table(caption, headings, rows, chosen = -1) {
  const numeric = headings.map((heading) => heading.startsWith("#"));
  const heading = (i) => headings[i].replace("#", "");
  const cell = (name, text, i, props = {}) => element(name, { ...props, "data-label": name === "td" ? heading(i) : undefined, class: numeric[i] ? "n" : heading(i) === "" && name === "td" ? "mark" : undefined }, text);
  const head = headings.map((heading, i) => cell("th", heading.replace("#", ""), i, { scope: "col" }));
  const body = rows.map((row, n) => element("tr", { class: n === chosen ? "chosen" : undefined }, ...row.map((text, i) => cell("td", text, i))));
  return element("table", {}, element("caption", { class: "hidden" }, caption),
    element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
}
