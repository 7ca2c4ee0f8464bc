/* Theme and keyboard of all pages; starts the other scripts. Texts are set as text, never as markup.
   Nothing is fetched. */

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
};
const grouped = (value) => value.toLocaleString("en-US");
const hex = (offset) => "0x" + offset.toString(16).padStart(4, "0");
const store = {
  get: () => { try { return localStorage.getItem("tritonhook-theme"); } catch { return null; } },
  set: (value) => { try { localStorage.setItem("tritonhook-theme", value); } catch { /* some browsers refuse this for a file from disk */ } },
};

/* --- theme and help ------------------------------------------------------------------------- */

const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};
const onTheme = [];
const setTheme = (theme) => {
  document.documentElement.dataset.theme = theme;
  $("#theme").setAttribute("aria-pressed", "false");
  $("#theme").textContent = theme === "dark" ? "Light" : "Dark";
  onTheme.forEach((redraw) => redraw());
};
setTheme(["dark", "light"].includes(store.get()) ? store.get() : isDark() ? "dark" : "light");
const toggleTheme = () => { setTheme(isDark() ? "light" : "dark"); store.set(document.documentElement.dataset.theme); };
$("#theme").removeAttribute("aria-pressed");
$("#theme").addEventListener("click", toggleTheme);
const help = $("#help");
$("#help-button").addEventListener("click", () => help.showModal());

/* --- code, charts and tables of this page ------------------------------------------------------------------------ */

const holder = $("#data");
const data = holder ? JSON.parse(holder.textContent) : {};
let viewer = null;
if (data.listings && $("#listings")) viewer = new Viewer($("#listings"), data.listings);
$$("input[data-rows]").forEach(filterRows);
$$("table.sortable").forEach(sortByColumn);
$$("svg[data-timeline]").forEach((svg) => {
  const points = (data.timelines || [])[Number(svg.dataset.timeline)];
  if (points) timeline(svg, points);
});

/* --- keys of the whole page ------------------------------------------------------------------- */

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "t") toggleTheme();
  else if (event.key === "?") help.showModal();
  else if (event.key === "/") { const field = $("input[type=search]"); if (field) { event.preventDefault(); field.focus(); field.select(); } }
  else if (viewer && event.target.id !== "code-view" && ["n", "p", "u", "m"].includes(event.key)) { $("#code-view").focus(); viewer.key(event); }
});
document.documentElement.dataset.ready = "yes";
