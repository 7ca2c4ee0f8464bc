/* Tables that filter and sort. */

/* Hides the rows that lack a word of `input`. */
const filterRows = (input) => {
  const rows = $$(input.dataset.rows), texts = rows.map((row) => row.textContent.toLowerCase());
  const status = $(".status", input.parentElement);
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, i) => { row.hidden = !wanted.every((word) => texts[i].includes(word)); shown += row.hidden ? 0 : 1; });
    if (status) status.textContent = wanted.length ? `${grouped(shown)} of ${grouped(rows.length)} rows` : "";
  });
  input.addEventListener("keydown", (event) => { if (event.key === "Escape") { input.value = ""; input.dispatchEvent(new Event("input")); } });
};

/* Makes each heading of `table` a button that sorts by its column. */
const sortByColumn = (table) => $$("thead th", table).forEach((head, column) => {
  if (!head.textContent.trim()) return;
  const button = make("button", { type: "button", class: "sort" }, ...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    $$("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => { const text = row.cells[column].dataset.sort ?? row.cells[column].textContent.trim(), value = Number(text.replaceAll(",", "")); return text !== "" && !Number.isNaN(value) ? value : text.toLowerCase(); };
    const compare = (x, y) => (typeof x === typeof y ? (x < y ? -1 : x > y ? 1 : 0) : typeof x === "number" ? -1 : 1);
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort((x, y) => compare(key(x), key(y)) * (down ? -1 : 1)));
  });
});
