// Text of figures, and elements; every name comes in as text, never as HTML.

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
  return `${value >= 100 || i === 0 ? value.toFixed(0) : value.toPrecision(2)} ${units[i]}`;
}

export const formatRate = (rate) => (rate === null || rate === undefined ? "unknown" : `${formatBytes(rate)}/s`);
export const formatPercent = (part) => (part === null || part === undefined ? "unknown" : `${Math.round(part * 100)} %`);
export const formatCount = (n, noun) => `${n ?? "?"} ${noun}${n === 1 ? "" : "s"}`;

export function formatDuration(seconds) {
  if (seconds === null || seconds === undefined) return "never at this write rate";
  if (seconds < 1) return `${seconds.toFixed(2)} s`;
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  if (seconds < 7200) return `${(seconds / 60).toFixed(0)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

// A table of texts and elements; a heading that starts with "#" is a column of numbers; `chosen` is a row's index.
export function table(caption, headings, rows, chosen = -1) {
  const numeric = headings.map((heading) => heading.startsWith("#"));
  const heading = (i) => headings[i].replace("#", "");
  const cell = (name, text, i, props = {}) => element(name, { ...props, class: numeric[i] ? "n" : heading(i) === "" && name === "td" ? "mark" : undefined }, text);
  const head = headings.map((heading, i) => cell("th", heading.replace("#", ""), i, { scope: "col" }));
  const body = rows.map((row, n) => element("tr", { class: n === chosen ? "chosen" : undefined }, ...row.map((text, i) => cell("td", text, i))));
  return element("table", {}, element("caption", { class: "hidden" }, caption),
    element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
}
