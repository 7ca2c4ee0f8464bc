/* Code listings. The document contains only the rows that are visible. */
const ROW = 20;
const PRINTED_ROWS = 1200;
const KINDS = [["all", "all rows"], ["unequal", "moved or on one side"], ["moved", "moved"], ["a", "only in a"], ["b", "only in b"], ["registers", "registers differ"], ["control", "only control fields differ"]];

class Listing {
  constructor(model, two) {
    this.model = model;
    this.two = two;
    this.count = model.rows.length / 3;
    this.moved = new Map();
    this.movedBack = new Map();
    for (let i = 0; i < (model.moved || []).length; i += 2) {
      this.moved.set(model.moved[i], model.moved[i + 1]);
      this.movedBack.set(model.moved[i + 1], model.moved[i]);
    }
    this.rowOf = [new Map(), new Map()];
    for (let r = 0; r < this.count; r++) {
      for (const side of [0, 1]) if (this.at(r, side) >= 0) this.rowOf[side].set(this.at(r, side), r);
    }
    this.kinds = Array.from({ length: this.count }, (_, r) => this.kindOf(r));
    this.unequal = this.kinds.filter((kind) => kind === "unequal").length;
    this.retouched = this.kinds.filter((kind) => kind === "registers" || kind === "control").length;
    this.open = new Set();
    this.filter = "";
    this.only = "all";
    this.current = 0;
    this.arrange();
  }
  at(row, side) { return this.model.rows[3 * row + side]; }
  inPlace(row) { return this.model.rows[3 * row + 2] === 1; }
  line(side, index) {
    if (this.model.kind === "sass") return this.model.sides[side].code[index];
    const own = this.model.sides[side][index];
    return [own === null ? this.model.sides[0][this.at(this.rowOf[1].get(index), 0)] : own];
  }
  kindOf(row) {
    if (!this.two) return "same";
    const a = this.at(row, 0), b = this.at(row, 1);
    if (!this.inPlace(row)) return "unequal";
    if (this.model.kind !== "sass") return "same";
    const x = this.line(0, a), y = this.line(1, b);
    return x[0] !== y[0] ? "registers" : x[1] !== y[1] ? "control" : "same";
  }
  sideKind(row, side) {
    const index = this.at(row, side);
    if (index < 0) return "gap";
    if (this.inPlace(row)) return "";
    return (side ? this.movedBack : this.moved).has(index) ? "moved" : "only";
  }
  matches(row) {
    if (["unequal", "registers", "control"].includes(this.only) && this.kinds[row] !== this.only) return false;
    if (this.only === "moved" && ![0, 1].some((side) => this.sideKind(row, side) === "moved")) return false;
    if (this.only === "a" && this.sideKind(row, 0) !== "only") return false;
    if (this.only === "b" && this.sideKind(row, 1) !== "only") return false;
    if (!this.filter) return true;
    return [0, 1].some((side) => this.at(row, side) >= 0 && this.text(row, side).toLowerCase().includes(this.filter));
  }
  text(row, side) {
    const line = this.line(side, this.at(row, side));
    return this.model.kind === "sass" ? `${line[0]} ${this.source(side, line)}` : line[0];
  }
  source(side, line) {
    if (line[2] < 0) return "";
    return this.model.sides[side].files[line[2]].split("/").pop() + ":" + line[3];
  }
  shortSource(side, line) {
    const [file, number] = this.source(side, line).split(/:(?=\d*$)/);
    return number === undefined ? "" : `${file.length > 16 - number.length ? file.slice(0, 15 - number.length) + "…" : file}:${number}`;
  }
  /* Makes `items`, the rows to show: the index of a row, or -1 minus the index of a fold. */
  arrange() {
    this.items = [];
    this.filtered = Boolean(this.filter) || this.only !== "all";
    if (this.filtered) {
      for (let row = 0; row < this.count; row++) if (this.matches(row)) this.items.push(row);
    } else {
      let row = 0;
      this.model.folds.forEach(([start, end], number) => {
        while (row < start) this.items.push(row++);
        this.items.push(-1 - number);
        if (this.open.has(number)) while (row < end) this.items.push(row++);
        row = end;
      });
      while (row < this.count) this.items.push(row++);
    }
    this.current = Math.max(0, Math.min(this.current, this.items.length - 1));
  }
  itemOfRow(row) { return this.items.indexOf(row); }
  reveal(row) {
    if (this.filtered) { this.filter = ""; this.only = "all"; }
    this.model.folds.forEach(([start, end], number) => { if (row >= start && row < end) this.open.add(number); });
    this.arrange();
    this.current = this.itemOfRow(row);
  }
}

class Viewer {
  constructor(root, listings) {
    this.root = root;
    this.two = listings.some((model) => model.sides.length === 2);
    this.listings = listings.map((model) => new Listing(model, model.sides.length === 2));
    root.classList.add(this.two ? "two" : "one");
    this.build(listings);
    this.show(0);
  }
  get listing() { return this.listings[this.active]; }
  build(models) {
    this.tabs = models.map((model, number) => make("button", {
      type: "button", role: "tab", id: `tab-${model.id}`, "aria-controls": "code-view", onclick: () => this.show(number),
    }, model.title));
    this.search = make("input", { type: "search", id: "filter", placeholder: "Filter: opcode, register, file:line  ( / )", "aria-label": "Filter the code", spellcheck: "false", autocomplete: "off" });
    this.search.addEventListener("input", () => { this.listing.filter = this.search.value.trim().toLowerCase(); this.refresh(true); });
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { this.search.value = ""; this.search.dispatchEvent(new Event("input")); this.view.focus(); }
      if (event.key === "ArrowDown" || event.key === "Enter") { event.preventDefault(); this.view.focus(); }
    });
    this.select = make("select", { "aria-label": "Which rows", id: "which" }, ...KINDS.map(([value, label]) => make("option", { value }, label)));
    this.select.addEventListener("change", () => { this.listing.only = this.select.value; this.refresh(true); });
    this.unfold = make("button", { type: "button", id: "unfold", onclick: () => this.toggleAll() }, "Unfold all");
    this.control = make("button", { type: "button", id: "control", title: "Wait mask, barriers, yield bit, stall cycles", onclick: () => this.toggleControl() }, "Control");
    this.control.setAttribute("aria-pressed", "true");
    this.status = make("span", { class: "status", role: "status", "aria-live": "polite" });
    const tabs = make("div", { role: "tablist", "aria-label": "Code" }, ...this.tabs);
    tabs.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      this.show((this.active + step + this.tabs.length) % this.tabs.length);
      this.tabs[this.active].focus();
    });
    const next = make("button", { type: "button", id: "next", title: "Next change (n)", onclick: () => this.change(1) }, "Next change");
    this.root.append(make("div", { class: "lbar" }, tabs, this.search, this.two ? this.select : null, this.two ? next : null, this.unfold, this.control, this.status));
    this.head = make("div", { class: "lhead", "aria-hidden": "true" });
    this.window = make("div", { class: "window" });
    this.space = make("div", { class: "space", role: "rowgroup" }, this.window);
    this.view = make("div", { class: "view", id: "code-view", tabindex: "0", role: "grid", "aria-label": "Code" }, this.space);
    this.map = make("canvas", { class: "map", "aria-hidden": "true", title: "All rows; click to go there" });
    this.inspector = make("div", { class: "inspector", "aria-live": "polite" });
    this.root.append(this.head, make("div", { class: "frame" }, this.view, this.map), this.inspector);
    this.view.addEventListener("scroll", () => this.draw(), { passive: true });
    this.view.addEventListener("keydown", (event) => this.key(event));
    this.view.addEventListener("click", (event) => this.click(event));
    const jump = (event) => {
      if (event.buttons !== 1 && event.type !== "click") return;
      const share = (event.clientY - this.map.getBoundingClientRect().top) / this.map.clientHeight;
      this.view.scrollTop = share * this.listing.items.length * ROW - this.view.clientHeight / 2;
    };
    this.map.addEventListener("click", jump);
    this.map.addEventListener("pointermove", jump);
    new ResizeObserver(() => { this.draw(); this.drawMap(); }).observe(this.view);
    onTheme.push(() => this.drawMap());
    addEventListener("beforeprint", () => this.print());
    addEventListener("afterprint", () => $(".printed", this.root)?.remove());
  }
  show(number) {
    this.active = number;
    const { model, filter, only } = this.listing;
    this.tabs.forEach((tab, i) => { tab.setAttribute("aria-selected", String(i === number)); tab.tabIndex = i === number ? 0 : -1; });
    this.root.classList.toggle("text", model.kind !== "sass");
    this.root.classList.toggle("nosource", model.kind === "sass" && model.sides.every((side) => side.files.length === 0));
    this.control.hidden = model.kind !== "sass";
    this.search.value = filter;
    this.select.value = only;
    ["moved", "registers", "control"].forEach((kind) => { this.select.querySelector(`[value=${kind}]`).hidden = model.kind !== "sass"; });
    const columns = () => model.kind === "sass"
      ? [make("span", { class: "no" }, "offset"), make("span", { class: "ctl" }, "wait   br y st"), make("span", {}, "instruction"), make("span", { class: "src" }, "source line")]
      : [make("span", { class: "no" }, "line"), make("span", {}, "text")];
    this.head.replaceChildren(...model.sides.map(() => make("div", { class: "cellv" }, ...columns())));
    this.unfold.hidden = model.folds.length === 0;
    this.refresh(false);
  }
  refresh(top) {
    this.listing.arrange();
    this.space.style.height = `${this.listing.items.length * ROW}px`;
    this.view.setAttribute("aria-rowcount", this.listing.items.length);
    if (top) { this.listing.current = 0; this.view.scrollTop = 0; }
    const { count, unequal, retouched, items, model, open } = this.listing;
    const rows = items.filter((item) => item >= 0).length;
    this.status.textContent = `${grouped(rows)} of ${grouped(count)} rows` + (this.two ? ` · ${grouped(unequal)} unequal` : "");
    this.status.title = this.two ? `${grouped(unequal)} rows moved or on one side only; in ${grouped(retouched)}, registers or control fields differ` : "";
    this.unfold.textContent = open.size === model.folds.length ? "Fold all" : "Unfold all";
    this.drawn = null;
    this.draw();
    this.drawMap();
    this.inspect();
  }
  draw() {
    const { items } = this.listing;
    const first = Math.max(0, Math.floor(this.view.scrollTop / ROW) - 8);
    const last = Math.min(items.length, Math.ceil((this.view.scrollTop + this.view.clientHeight) / ROW) + 8);
    if (this.drawn && this.drawn[0] === first && this.drawn[1] === last) return;
    this.drawn = [first, last];
    this.window.style.transform = `translateY(${first * ROW}px)`;
    this.window.replaceChildren(...items.slice(first, last).map((item, i) => this.item(item, first + i)));
    this.mark();
  }
  item(item, number) {
    const row = make("div", { class: "lrow", id: `item-${number}`, role: "row", "aria-rowindex": number + 1, "data-item": number });
    if (item < 0) row.append(this.foldHead(-1 - item));
    else row.append(...this.listing.model.sides.map((_, side) => this.cell(item, side)));
    return row;
  }
  foldHead(number) {
    const [start, end, kind, title, changed] = this.listing.model.folds[number];
    const open = this.listing.open.has(number);
    const size = end - start;
    const words = kind === "loop" ? [make("b", {}, title), `${grouped(size)} rows` + (this.two ? `, ${grouped(changed)} unequal` : "")] : [`${grouped(size)} equal rows`];
    return make("div", { class: `fold ${kind}`, role: "gridcell", "data-fold": number, "aria-expanded": String(open) }, make("span", { class: "arrow", "aria-hidden": "true" }, open ? "▾" : "▸"), ...words);
  }
  cell(row, side) {
    const listing = this.listing, index = listing.at(row, side);
    const kind = listing.two ? listing.sideKind(row, side) : "";
    const cell = make("div", { class: `cellv ${kind} ${"ab"[side]}`, role: "gridcell" });
    if (index < 0) return cell;
    const line = listing.line(side, index);
    if (listing.model.kind !== "sass") {
      cell.append(make("span", { class: "no" }, String(index + 1)), make("span", {}, line[0]));
      return cell;
    }
    const kindOfRow = listing.kinds[row];
    const other = kindOfRow === "registers" ? listing.line(1 - side, listing.at(row, 1 - side))[0] : null;
    const controlDiffers = listing.two && listing.inPlace(row) && listing.line(0, listing.at(row, 0))[1] !== listing.line(1, listing.at(row, 1))[1];
    const text = make("span", { class: "ins" }, ...instruction(line[0], other, listing.model.classes));
    if (kind === "moved") text.prepend(make("button", { type: "button", class: "go", tabindex: "-1", "data-go": side, title: "Moved: go to its place on the other side (m)" }, "⇄"));
    cell.append(
      make("span", { class: "no" }, hex(16 * index)),
      make("span", { class: `ctl${controlDiffers ? " diff" : ""}`, title: controlWords(line[1]) }, control(line[1])),
      text,
      make("span", { class: "src", title: listing.source(side, line) }, listing.shortSource(side, line)),
    );
    return cell;
  }
  mark() {
    for (const row of this.window.children) row.classList.toggle("cur", Number(row.dataset.item) === this.listing.current);
    this.view.setAttribute("aria-activedescendant", `item-${this.listing.current}`);
  }
  go(number, center = false) {
    const { items } = this.listing;
    this.listing.current = Math.max(0, Math.min(items.length - 1, number));
    const top = this.listing.current * ROW, height = this.view.clientHeight;
    if (center) this.view.scrollTop = top - height / 2;
    else if (top < this.view.scrollTop + ROW) this.view.scrollTop = top - ROW;
    else if (top + 2 * ROW > this.view.scrollTop + height) this.view.scrollTop = top + 2 * ROW - height;
    this.draw();
    this.mark();
    this.inspect();
  }
  inspect() {
    const listing = this.listing, item = listing.items[listing.current];
    if (item === undefined) return this.inspector.replaceChildren(make("div", {}, "No row fits the filter."));
    if (item < 0) {
      const [start, end, kind, title] = listing.model.folds[-1 - item];
      return this.inspector.replaceChildren(make("div", {}, kind === "loop" ? `${title}: ${grouped(end - start)} rows. Enter unfolds and folds.` : `${grouped(end - start)} rows that are equal on both sides.`));
    }
    this.inspector.replaceChildren(...listing.model.sides.map((_, side) => this.inspectSide(item, side)));
  }
  inspectSide(row, side) {
    const listing = this.listing, index = listing.at(row, side);
    if (index < 0) return make("div", {}, make("p", {}, "This side has no instruction here."));
    const line = listing.line(side, index);
    const box = make("div", {}, make("code", {}, line[0]));
    if (listing.model.kind === "sass") {
      const places = [];
      const own = listing.model.sides[side];
      if (line[2] >= 0) places.push(`${own.files[line[2]]}:${line[3]}`, own.sources[line[2]]?.[line[3]]?.trim() ?? "");
      const ptx = this.listings.findIndex((each) => each.model.id === "ptx");
      box.append(make("p", {}, controlWords(line[1])));
      const where = make("p", {}, places.join(" "));
      if (line[4] && ptx >= 0) where.append(places.length ? " · " : "", make("button", { type: "button", class: "link", onclick: () => this.openPtx(ptx, side, line[4] - 1) }, `PTX line ${grouped(line[4])}`));
      box.append(where);
      const partner = (side ? listing.movedBack : listing.moved).get(index);
      if (!listing.inPlace(row) && partner !== undefined) box.append(make("p", {}, make("button", { type: "button", class: "link follow", onclick: () => this.follow(row, side) }, `Moved: it is at ${hex(16 * partner)} in ${"ba"[side]}`)));
    }
    return box;
  }
  openPtx(number, side, index) {
    this.show(number);
    const row = this.listing.rowOf[side].get(index);
    if (row === undefined) return;
    this.listing.reveal(row);
    this.search.value = ""; this.select.value = "all";
    this.refresh(false);
    this.go(this.listing.current, true);
    this.flash();
  }
  follow(row, side) {
    const listing = this.listing;
    /* pressed again after a jump, the key jumps back */
    const back = this.landed && this.landed.row === row ? this.landed.side : 0;
    const sides = side === undefined ? [back, 1 - back] : [side];
    for (const from of sides) {
      const index = listing.at(row, from);
      const partner = index >= 0 && listing.sideKind(row, from) === "moved" ? (from ? listing.movedBack : listing.moved).get(index) : undefined;
      if (partner === undefined) continue;
      this.landed = { row: listing.rowOf[1 - from].get(partner), side: 1 - from };
      listing.reveal(this.landed.row);
      this.search.value = ""; this.select.value = "all";
      const current = listing.current;
      this.refresh(false);
      this.go(current, true);
      this.flash();
      return;
    }
  }
  flash() {
    const row = $(`#item-${this.listing.current}`, this.window);
    if (row) { row.classList.remove("flash"); void row.offsetWidth; row.classList.add("flash"); }
  }
  toggleFold(number) {
    const { open } = this.listing;
    open.has(number) ? open.delete(number) : open.add(number);
    const at = this.listing.items.indexOf(-1 - number);
    const top = this.view.scrollTop;
    this.refresh(false);
    this.view.scrollTop = top;
    this.go(at);
  }
  toggleAll() {
    const { open, model } = this.listing;
    if (open.size === model.folds.length) open.clear();
    else model.folds.forEach((_, number) => open.add(number));
    this.refresh(false);
  }
  toggleControl() {
    const off = this.root.classList.toggle("nocontrol");
    this.control.setAttribute("aria-pressed", String(!off));
  }
  /* Changes inside folds are found too; their fold is opened. */
  change(step) {
    const { items, kinds, model, unequal } = this.listing;
    const counts = (kind) => (unequal ? kind === "unequal" : kind !== "same");
    const here = items[this.listing.current];
    let row = here === undefined ? 0 : here >= 0 ? here + step : step > 0 ? model.folds[-1 - here][0] : model.folds[-1 - here][0] - 1;
    while (row >= 0 && row < kinds.length) {
      if (counts(kinds[row]) && (!this.listing.filtered || this.listing.matches(row))) {
        if (this.listing.itemOfRow(row) < 0) { this.listing.reveal(row); const at = this.listing.current; this.refresh(false); this.listing.current = at; }
        return this.go(this.listing.itemOfRow(row), true);
      }
      row += step;
    }
  }
  click(event) {
    const row = event.target.closest(".lrow");
    if (!row) return;
    const number = Number(row.dataset.item), item = this.listing.items[number];
    const go = event.target.closest("[data-go]");
    this.view.focus({ preventScroll: true }); /* the clicked element, which had the focus, may have been replaced */
    this.go(number);
    if (go) this.follow(item, Number(go.dataset.go));
    else if (item < 0) this.toggleFold(-1 - item);
  }
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.floor(this.view.clientHeight / ROW) - 2, at = this.listing.current, item = this.listing.items[at];
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9, j: 1, k: -1 };
    if (event.key in moves) this.go(at + moves[event.key]);
    else if (event.key === "n") this.change(1);
    else if (event.key === "p") this.change(-1);
    else if (event.key === "u") this.toggleAll();
    else if (event.key === "m" && item >= 0) this.follow(item);
    else if ((event.key === "Enter" || event.key === " ") && item < 0) this.toggleFold(-1 - item);
    else if (event.key === "Enter" && item >= 0) this.follow(item);
    else return;
    event.preventDefault();
  }
  drawMap() {
    const canvas = this.map, { items, kinds } = this.listing;
    const height = canvas.clientHeight, scale = devicePixelRatio || 1;
    if (!height) return;
    canvas.width = 14 * scale; canvas.height = height * scale;
    const context = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    /* the value of a custom property is unresolved, e.g. light-dark(); the colour of an element is resolved */
    const probe = make("i"); document.body.append(probe);
    const colour = (name) => { probe.style.color = style.getPropertyValue(name); return getComputedStyle(probe).color; };
    const colours = { a: colour("--a"), b: colour("--b"), moved: colour("--moved"), soft: colour("--strong") };
    probe.remove();
    const lines = Math.min(items.length, canvas.height);
    for (let y = 0; y < lines; y++) {
      const from = Math.floor((y * items.length) / lines), to = Math.max(from + 1, Math.floor(((y + 1) * items.length) / lines));
      let left = null, right = null;
      for (let i = from; i < to; i++) {
        const item = items[i];
        if (item < 0 || kinds[item] === "same") continue;
        const kind = [0, 1].map((side) => this.listing.sideKind(item, side));
        const soft = kinds[item] === "registers" ? colours.soft : null;
        left = left || (kind[0] === "moved" ? colours.moved : kind[0] === "only" ? colours.a : soft);
        right = right || (kind[1] === "moved" ? colours.moved : kind[1] === "only" ? colours.b : soft);
      }
      const top = (y * canvas.height) / Math.max(lines, 1), tall = Math.max(1, canvas.height / Math.max(lines, 1));
      if (left) { context.fillStyle = left; context.fillRect(2 * scale, top, 5 * scale, tall); }
      if (right) { context.fillStyle = right; context.fillRect(7 * scale, top, 5 * scale, tall); }
    }
  }
  print() {
    $(".printed", this.root)?.remove();
    const box = make("div", { class: "printed" });
    const shown = this.active;
    this.listings.forEach((listing, number) => {
      this.active = number;
      const items = listing.items.slice(0, PRINTED_ROWS);
      const part = make("div", { class: listing.model.kind !== "sass" ? "text" : "" }, make("h3", {}, listing.model.title), ...items.map((item, i) => this.item(item, `print-${number}-${i}`)));
      if (listing.items.length > items.length) part.append(make("p", {}, `${grouped(listing.items.length - items.length)} further rows are not printed. Filter the code to choose the rows to print.`));
      box.append(part);
    });
    this.active = shown;
    this.root.append(box);
  }
}

const PARTS = /^(@\S+ )?(\S+)(.*)$/;
function instruction(text, other, classes) {
  const [, predicate, opcode, operands] = PARTS.exec(text) || [null, "", text, ""];
  const base = opcode.split(".")[0];
  const parts = [];
  if (predicate) parts.push(make("span", { class: "pred" }, predicate));
  parts.push(make("span", { class: `op t${classes[base] ?? 6}` }, opcode));
  if (other === null) return [...parts, operands];
  const theirs = ((PARTS.exec(other) || [])[3] || "").split(/([^\w.+-]+)/);
  operands.split(/([^\w.+-]+)/).forEach((word, i) => parts.push(word && word !== theirs[i] ? make("mark", {}, word) : word));
  return parts;
}
const fields = (c) => ({ stall: c & 15, yields: (c >> 4) & 1, write: (c >> 5) & 7, read: (c >> 8) & 7, wait: (c >> 11) & 63, reuse: (c >> 17) & 15 });
function control(c) {
  const f = fields(c);
  const wait = [0, 1, 2, 3, 4, 5].map((bit) => ((f.wait >> bit) & 1 ? bit : "-")).join("");
  return `${wait} ${f.read === 7 ? "-" : f.read}${f.write === 7 ? "-" : f.write} ${f.yields ? "Y" : "-"} ${String(f.stall).padStart(2, "0")}`;
}
function controlWords(c) {
  const f = fields(c), words = [`stall ${f.stall} cycles`, f.yields ? "yield bit set (no hint to switch)" : "yield bit clear"];
  const waits = [0, 1, 2, 3, 4, 5].filter((bit) => (f.wait >> bit) & 1);
  if (waits.length) words.push(`waits for barrier ${waits.join(", ")}`);
  if (f.read !== 7) words.push(`read barrier ${f.read}`);
  if (f.write !== 7) words.push(`write barrier ${f.write}`);
  if (f.reuse) words.push(`reuse 0x${f.reuse.toString(16)}`);
  return words.join(" · ");
}
