class Chart {
  constructor(panel, parent) {
    this.panel = panel;
    this.pointed = null; // the x that is read out; the last one unless the reader points elsewhere
    this.figure = element("figure", parent);
    this.caption = element("figcaption", this.figure);
    this.svg = shape("svg", this.figure, { class: "chart", role: "img", tabindex: "0" });
    this.readout = element("table", this.figure);
    this.readout.className = "readout";
    this.svg.addEventListener("pointermove", (event) => this.hover(event));
    this.svg.addEventListener("pointerdown", (event) => this.hover(event));
    this.svg.addEventListener("pointerleave", () => this.point(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    // Only the chart that has the focus speaks: toggling an agent changes them all.
    this.svg.addEventListener("focus", () => this.readout.setAttribute("aria-live", "polite"));
    this.svg.addEventListener("blur", () => {
      this.readout.removeAttribute("aria-live");
      this.point(null);
    });
  }

  // The curves that are to be seen: those of the chosen agents and preset that have the metric.
  select(choice) {
    this.metric = metrics.get(this.panel.metric ?? choice.metric);
    this.withSeeds = choice.seeds;
    this.curves = this.panel.curves
      .filter((curve) => curve.preset === choice.preset && choice.agents.has(curve.agent))
      .filter((curve) => this.metric.name in curve.metrics)
      .map((curve) => ({ ...curve, ...curve.metrics[this.metric.name], style: agents.get(curve.agent) }))
      .map((curve) => (choice.median && curve.each ? middle(curve) : interval(curve)));
    this.axis = this.panel.section === "curves" ? choice.axis : "full";
    this.xs = [...new Set(this.curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
    if (!this.xs.includes(this.pointed)) this.pointed = null;
    const axis = { full: "", zoomed: ", zoomed axis", log: ", logarithmic axis" }[this.axis];
    const missing = choice.seeds && this.curves.some((curve) => !curve.each) && this.panel.section === "curves";
    this.caption.textContent = this.panel.title + (data.presets.length > 1 ? `, preset ${choice.preset}` : "") + axis;
    if (missing) this.caption.textContent += " (single seeds of this metric are not in the page)";
  }

  // Least and greatest y that is drawn.
  extent() {
    const half = this.xs.at(-1) / 2;
    const values = this.curves.flatMap((curve) =>
      this.axis === "zoomed"
        ? curve.mean.filter((mean, i) => mean !== null && curve.x[i] >= half)
        : [...curve.low, ...curve.high, ...(this.withSeeds && curve.each ? curve.range : [])],
    );
    const known = values.filter((value) => value !== null);
    return [Math.min(...known), Math.max(...known)];
  }

  draw(range, linear) {
    const width = Math.max(240, this.figure.clientWidth || 360);
    this.range = range;
    this.linear = linear;
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    if (this.xs.length === 0) {
      shape("text", this.svg, { x: MARGIN.left, y: HEIGHT / 2 }, "No chosen agent has this metric here.");
      return this.read();
    }
    const spans = this.panel.x ?? [Math.min(0, this.xs[0]), this.xs.at(-1)];
    this.x = scale([spans[0], spans[1] > spans[0] ? spans[1] : spans[0] + 1], [MARGIN.left, width - MARGIN.right]);
    const to = linear ? signed(linear) : (value) => value;
    const place = scale(range.map(to), [HEIGHT - MARGIN.bottom, MARGIN.top]);
    this.y = (value) => place(to(value));
    this.axes(width, spans);
    // A picture within the picture cuts off what lies beyond the axis.
    const [x, y] = [MARGIN.left, MARGIN.top - 3];
    const [wide, high] = [width - MARGIN.right - x + 3, HEIGHT - MARGIN.bottom - y + 1];
    this.inside = shape("svg", this.svg, { x, y, width: wide, height: high, viewBox: `${x} ${y} ${wide} ${high}` });
    for (const curve of this.curves) this.curve(curve);
    this.cross = shape("g", this.svg, {});
    this.read();
  }

  axes(width, spans) {
    const [left, right, top, bottom] = [MARGIN.left, width - MARGIN.right, MARGIN.top, HEIGHT - MARGIN.bottom];
    const rows = this.linear ? powers(...this.range, this.linear) : ticks(...this.range, 5);
    axes(this, { left, right, bottom }, rows, ticks(spans[0], Math.max(spans[1], spans[0] + 1e-9), 5));
    const middle = (left + right) / 2;
    shape("text", this.svg, { x: middle, y: HEIGHT - 6, "text-anchor": "middle" }, this.panel.xlabel);
    const turned = { transform: `translate(12 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" };
    shape("text", this.svg, turned, this.metric.axis);
    for (const ys of this.metric.references) {
      const ends = { x1: left, x2: right, y1: this.y(ys[0]), y2: this.y(ys[1]) };
      shape("line", this.svg, { class: "reference", ...ends });
    }
  }

  curve({ x, mean, low, high, each, range, style }) {
    const group = shape("g", this.inside, { class: `ink-${style.ink}`, "data-agent": style.name });
    const there = x.map((_, i) => i).filter((i) => mean[i] !== null);
    const edge = (ys) => there.map((i) => `${this.x(x[i]).toFixed(1)} ${this.y(ys[i]).toFixed(1)}`);
    if (there.some((i) => high[i] > low[i])) {
      shape("path", group, { class: "band", d: `M${edge(high).concat(edge(low).reverse()).join("L")}Z` });
    }
    if (this.withSeeds && each) {
      for (const seed of each) shape("path", group, { class: "seed", d: path(x, decode(seed, range), this.x, this.y) });
    }
    shape("path", group, { class: "line", "stroke-dasharray": style.dash, d: path(x, mean, this.x, this.y) });
    if (there.length === 1) this.dot(group, x[there[0]], mean[there[0]]);
  }

  dot(parent, x, y) {
    shape("circle", parent, { class: "dot", r: 4, cx: this.x(x), cy: this.y(y) });
  }

  // The values at the x pointed at, beside the chart and as the chart's description.
  read() {
    this.readout.replaceChildren();
    this.cross?.replaceChildren();
    const x = this.pointed ?? this.xs.at(-1);
    const said = [];
    if (x !== undefined) {
      const at = `${this.panel.at} ${x.toLocaleString("en-GB")}${this.panel.unit ?? ""}`;
      const median = this.curves.some((curve) => curve.median) ? ", median (middle half)" : "";
      const solved = this.curves.some((curve) => this.solved(curve)) ? ", seeds that solved it" : "";
      element("caption", this.readout, `${this.metric.label}${median}${solved}, ${at}`);
      if (this.pointed !== null) {
        const [x1, y1, y2] = [this.x(x), MARGIN.top, HEIGHT - MARGIN.bottom];
        shape("line", this.cross, { class: "cross", x1, x2: x1, y1, y2 });
      }
      for (const curve of this.curves) {
        const i = curve.x.indexOf(x);
        if (i < 0) continue;
        said.push(this.row(curve, i));
        if (this.pointed !== null && curve.mean[i] !== null) {
          this.dot(shape("g", this.cross, { class: `ink-${curve.style.ink}` }), x, curve.mean[i]);
        }
      }
      said.unshift(`${at}:`);
    }
    const what = `${this.metric.label} against ${this.panel.xlabel}, ${this.caption.textContent}.`;
    this.svg.setAttribute("aria-label", `${what} ${said.join(" ") || "Nothing to show."}`);
  }

  solved(curve) {
    return this.metric.name === "return_mean" ? (curve.solved ?? "") : "";
  }

  // A line of the readout; returns it as text.
  row(curve, i) {
    const row = element("tr", this.readout);
    const head = element("th", row);
    head.scope = "row";
    const swatch = shape("svg", head, { class: `swatch ink-${curve.style.ink}`, viewBox: "0 0 32 12", "aria-hidden": "true" });
    shape("line", swatch, { x1: 0, x2: 32, y1: 6, y2: 6, "stroke-dasharray": curve.style.dash });
    head.append(` ${curve.style.label}`);
    const extent = this.range[1] - this.range[0];
    const value = curve.mean[i] === null ? "–" : format(curve.mean[i], extent);
    const ends = () => `(${format(curve.low[i], extent)} to\u00a0${format(curve.high[i], extent)})`;
    const known = curve.mean[i] !== null && curve.seeds[i] > 1;
    const spread = known ? (curve.median ? ` ${ends()}` : `\u00a0±\u00a0${format(curve.spread[i], extent)}`) : "";
    element("td", row, value + spread);
    const left = curve.seeds[i] < curve.asked ? `${curve.seeds[i]} of ${curve.asked} seeds` : "";
    const fewer = [left, this.solved(curve)].filter(Boolean).join(", ");
    element("td", row, fewer);
    return `${curve.style.label} ${value}${spread}${fewer && ` (${fewer})`};`;
  }

  point(x) {
    if (x === this.pointed) return;
    this.pointed = x;
    this.read();
  }

  hover(event) {
    if (this.xs.length === 0) return;
    const box = this.svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * this.svg.viewBox.baseVal.width;
    const distance = (x) => Math.abs(this.x(x) - at);
    this.point(this.xs.reduce((best, x) => (distance(x) < distance(best) ? x : best)));
  }

  key(event) {
    const last = this.xs.length - 1;
    const now = this.pointed === null ? last : this.xs.indexOf(this.pointed);
    const moves = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last };
    if (event.key === "Escape") return this.point(null);
    if (!(event.key in moves) || last < 0) return;
    event.preventDefault();
    this.point(this.xs[Math.min(last, Math.max(0, moves[event.key]))]);
  }
}

const charts = data.panels.map(
  (panel) => new Chart(panel, document.querySelector(`[data-section="${panel.section}"]`)),
);

// Charts of one task and kind share their y axis, so that they can be compared at a glance; zoomed ones do not.
function redraw() {
  const choice = chosen();
  for (const chart of charts) chart.select(choice);
  for (const name of new Set(data.panels.map((panel) => panel.group))) {
    const group = charts.filter((chart) => chart.panel.group === name);
    const linear = choice.axis === "log" && name.startsWith("curves") ? usual(group) : 0;
    if (choice.axis === "zoomed" && name.startsWith("curves")) {
      for (const chart of group) chart.draw(common([chart]), 0);
      continue;
    }
    const range = common(group, linear);
    for (const chart of group) chart.draw(range, linear);
  }
}

// A power of ten near the size of the smaller lines that are drawn; up to there a logarithmic axis is linear.
function usual(group) {
  const curves = group.flatMap((chart) => chart.curves);
  const sizes = curves.flatMap((curve) => curve.mean.map(Math.abs)).filter((size) => size > 0).sort((a, b) => a - b);
  return sizes.length ? 10 ** Math.round(Math.log10(quantile(sizes, 0.25))) : 1;
}

function common(group, linear = 0) {
  if (group[0].panel.y) return group[0].panel.y;
  const metric = group[0].metric;
  const drawn = group.filter((chart) => chart.xs.length > 0).flatMap((chart) => chart.extent());
  const zoomed = group[0].axis === "zoomed";
  const more = zoomed ? [] : [...(metric.zero ? [0] : []), ...metric.references.flat()];
  const values = drawn.filter(Number.isFinite).concat(more);
  if (values.length === 0) return [0, 1];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  if (linear) return [low - 0.2 * Math.abs(low), high + 0.2 * Math.abs(high)];
  const room = (high - low) * 0.04 || Math.max(1e-3, Math.abs(low) / 10);
  return [metric.zero && low === 0 && !zoomed ? 0 : low - room, high + room];
}

form.addEventListener("change", redraw);
form.addEventListener("submit", (event) => event.preventDefault());

redrawWhenResized();

// On paper everything is open.
const opened = [];
addEventListener("beforeprint", () => {
  for (const section of document.querySelectorAll("details:not([open])")) {
    section.open = true;
    opened.push(section);
  }
});
addEventListener("afterprint", () => {
  for (const section of opened.splice(0)) section.open = false;
});

redraw();
