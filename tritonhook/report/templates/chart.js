/* Charts that answer the pointer and the keys: the heat map of a sweep, and memory over time. */

/* Fills the heat map `heat` and opens its cells. */
const heatMap = (heat, sweep) => {
  const cells = sweep.cells.map((values) => Object.fromEntries(sweep.columns.map((key, i) => [key, values[i]])));
  const button = (cell) => cell && $("button", cell);
  const visibleRows = () => $$("tbody tr", heat).filter((row) => !row.hidden);
  const first = $("tbody button", heat);
  if (first) first.tabIndex = 0;
  const focus = (target) => { if (!target) return; $$("tbody button[tabindex='0']", heat).forEach((other) => { other.tabIndex = -1; }); target.tabIndex = 0; target.focus(); };
  heat.addEventListener("keydown", (event) => {
    const at = event.target.closest("td.h");
    if (!at) return;
    const rows = visibleRows(), row = rows.indexOf(at.parentElement), column = at.cellIndex;
    const seek = (dr, dc) => {
      for (let r = row + dr, c = column + dc; rows[r] && rows[r].cells[c]; r += dr, c += dc) if (button(rows[r].cells[c])) return button(rows[r].cells[c]);
      return null;
    };
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!(event.key in steps)) return;
    event.preventDefault();
    focus(seek(...steps[event.key]));
  });
  const select = $("#template");
  const repaint = () => {
    const telling = select && select.value === "" ? new Set([...select.options].map((option) => option.value)) : null;
    $$("tbody button", heat).forEach((each) => {
      const mine = each.dataset.cells.split(",").map((i) => cells[i]);
      const signs = mine.filter((cell) => !select || (telling ? telling.has(cell.template) : cell.template === select.value)).map((cell) => cell.sign);
      const sign = sweep.signs.find((one) => signs.includes(one)) ?? "";
      const worst = mine.find((cell) => cell.sign === sign && (!telling || telling.has(cell.template)) && (!select || !select.value || cell.template === select.value));
      const found = measure.value && worst && worst.measures.find(([label]) => label === measure.value);
      const known = found && typeof found[1] === "number" && typeof found[2] === "number";
      each.style.background = each.style.color = "";
      each.textContent = sign;
      each.className = `s-${sweep.classes[sign]}`;
      if (!measure.value) return;
      each.className = known ? "heatcell" : sign === "X" ? "s-crash" : "s-none";
      if (!known) return;
      const share = found[1] ? found[2] / found[1] - 1 : found[2] ? 1 : 0;
      const depth = Math.min(100, Math.round(Math.sqrt(Math.abs(share)) * 160));
      each.textContent = found[2] === found[1] ? "0" : `${found[2] > found[1] ? "+" : "−"}${grouped(Math.abs(found[2] - found[1]))}`;
      each.style.background = depth ? `color-mix(in oklab, var(${share > 0 ? "--hot" : "--cold"}) ${depth}%, var(--raised))` : "";
      each.style.color = depth > 55 ? "var(--bg)" : "var(--ink)";
    });
    $("#verdict-legend").hidden = Boolean(measure.value);
  };
  const measure = $("#measure");
  [...new Set(cells.flatMap((cell) => cell.measures.map(([label]) => label)))].forEach((label) => measure.append(make("option", { value: label }, `change of ${label}`)));
  measure.addEventListener("change", repaint);
  if (select) select.addEventListener("change", repaint);
  if (select) repaint();
  const rowsTable = (head, rows) => make("div", { class: "scroll" }, make("table", { class: "plain" },
    make("thead", {}, make("tr", {}, ...head.map((text, i) => make("th", { scope: "col", class: i ? "num" : null }, text)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((text, i) => make(i ? "td" : "th", { class: i ? "num" : null, scope: i ? null : "row" }, text === null || text === undefined ? "not known" : typeof text === "number" ? grouped(text) : String(text))))))));
  const change = (a, b) => (typeof a !== "number" || typeof b !== "number" || a === b ? "" : `${b > a ? "+" : "-"}${grouped(Math.abs(b - a))}${a ? ` (${b > a ? "+" : "-"}${((100 * Math.abs(b - a)) / a).toFixed(1)}%)` : ""}`);
  const openCell = (target) => {
    const row = target.closest("tr"), indices = target.dataset.cells.split(",");
    const mine = indices.map((i) => cells[i]).filter((cell) => !select || !select.value || cell.template === select.value);
    const chosen = [...mine].sort((a, b) => sweep.signs.indexOf(a.sign) - sweep.signs.indexOf(b.sign))[0];
    if (!chosen) return;
    $("#cell-title").textContent = `${row.cells[0].textContent.trim()}, ${row.cells[1].textContent.trim()}, ptxas ${chosen.ptxas}`;
    const body = $("#cell-body");
    const show = (cell) => {
      const taken = (value) => (value === true ? "taken" : value === false ? "not taken" : "cannot tell");
      body.replaceChildren(make("p", { class: "facts" }, `${sweep.words[cell.sign]}${cell.differences.length ? `: ${cell.differences.join(", ")}` : ""}.`));
      if (mine.length > 1) {
        const names = make("select", { "aria-label": "Name" }, ...mine.map((each, i) => make("option", { value: i, selected: each === cell ? "" : null }, `${each.sign}  ${each.template}`)));
        names.addEventListener("change", () => { show(mine[Number(names.value)]); $("select", body).focus(); });
        body.append(make("label", {}, "name ", names));
      }
      if (cell.names) body.append(make("p", { class: "faint" }, `${cell.names[1]} against the control ${cell.names[0]}` + (cell.draws ? `; confirmed in ${cell.draws} further runs of each` : "")));
      const pair = make("div", { class: "pair" });
      const known = cell.measures.filter(([, a, b]) => a !== null || b !== null);
      const differing = known.filter(([, a, b]) => a !== b), equal = known.filter(([, a, b]) => a === b);
      if (known.length) pair.append(rowsTable(["", "control", "name", "change"], [...differing.map(([label, a, b]) => [label, a, b, change(a, b)]), ["ptxas's other scheduler", taken(cell.scheduler[0]), taken(cell.scheduler[1]), ""]]));
      if (cell.sections.length) pair.append(rowsTable(["section", "control", "name", "change"], cell.sections.map(([role, a, b]) => [role, a ?? "absent", b ?? "absent", change(a, b)])));
      body.append(pair);
      if (equal.length) body.append(make("p", { class: "faint" }, `the same: ${equal.map(([label, a]) => `${label} ${typeof a === "number" ? grouped(a) : a}`).join(", ")}`));
      cell.messages.forEach((text, i) => { if (text) body.append(make("p", {}, `under the ${i ? "name" : "control"}: ${text}`)); });
      const listing = cell.code && sweep.listings[cell.code];
      if (listing) {
        const holder = make("div", { class: "listings" });
        body.append(make("h3", {}, "Code: a under the control, b under the name"), holder);
        viewer = new Viewer(holder, [listing]);
      } else if (cell.sign === "D") {
        body.append(make("p", { class: "faint" }, "The code of this cell was not kept. `tritonhook lab probe ... --html FILE` keeps the code of small sweeps."));
      }
    };
    $("#cell").showModal();
    show(chosen);
  };
  heat.addEventListener("click", (event) => { const target = event.target.closest("button[data-cells]"); if (target) { focus(target); openCell(target); } });
};

/* Shows the values of `points` under the pointer on the chart `svg`, or by arrow keys. */
const timeline = (svg, points) => {
  const cross = $(".cross", svg), status = $(".status", svg.parentElement);
  const used = points.series[0][1];
  let at = 0;
  const value = (series, t) => {
    let low = 0, high = series.length - 1, found = null;
    while (low <= high) { const middle = (low + high) >> 1; if (series[middle][0] <= t) { found = series[middle][1]; low = middle + 1; } else high = middle - 1; }
    return found;
  };
  const show = (t) => {
    const x = points.left + (t / points.end) * (points.right - points.left);
    cross.removeAttribute("hidden");
    $("line", cross).setAttribute("x1", x);
    $("line", cross).setAttribute("x2", x);
    const texts = points.series.map(([name, series]) => [name, value(series, t)]).filter(([, v]) => v !== null);
    status.textContent = `${t.toFixed(3)} s: ` + texts.map(([name, v]) => `${name} ${v.toLocaleString("en-US", { maximumFractionDigits: 1 })} ${points.unit}`).join(", ");
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), x = ((event.clientX - box.left) / box.width) * 1000;
    show(Math.max(0, Math.min(points.end, ((x - points.left) / (points.right - points.left)) * points.end)));
  });
  svg.addEventListener("pointerleave", () => { cross.setAttribute("hidden", ""); status.textContent = ""; });
  svg.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -used.length, End: used.length, PageUp: -20, PageDown: 20 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    at = Math.max(0, Math.min(used.length - 1, at + steps[event.key]));
    show(used[at][0]);
  });
};
