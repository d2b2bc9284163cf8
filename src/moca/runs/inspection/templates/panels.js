"use strict"; // this comes first; no libraries, no requests

// Charts over time and pictures of one step. A chart knows its view (an agent) and how to draw itself.
const data = JSON.parse(document.getElementById("data").textContent);
const HEIGHT = 170;
const MARGIN = { top: 8, right: 12, bottom: 30, left: 52 };

// An array of the page: `at(step, …)` is a number of it.
function unpack({ shape, data: text }) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const numbers = new Float32Array(bytes.buffer);
  const strides = shape.map((_, i) => shape.slice(i + 1).reduce((a, b) => a * b, 1));
  const at = (...index) => numbers[index.reduce((sum, each, i) => sum + each * strides[i], 0)];
  return { shape, at };
}

const views = data.views.map((view, number) => {
  const arrays = Object.fromEntries(Object.entries(view.arrays).map(([name, array]) => [name, unpack(array)]));
  return { ...view, number, arrays, steps: arrays.value.shape[0], has: (name) => name in arrays };
});

// Some room above and below what is drawn.
function padded([low, high]) {
  const room = (high - low) * 0.05 || Math.max(1e-3, Math.abs(low) / 10);
  return [low - room, high + room];
}

function between(value, low, high) {
  return Math.min(high, Math.max(low, value));
}

// The picture and what is written below it, in the cell of a panel.
class Picture {
  constructor(view, panel, title, height = HEIGHT) {
    const cell = document.querySelector(`[data-view="${view.number}"] [data-panel="${panel}"]`);
    Object.assign(this, { view, title, height });
    this.figure = element("figure", cell);
    element("figcaption", this.figure, title);
    this.svg = shape("svg", this.figure, { class: "chart", role: "img" });
    this.keys = element("ul", this.figure);
    this.keys.className = "keys";
    this.svg.setAttribute("aria-label", `${title}, ${view.label}`);
  }

  clear() {
    this.width = Math.max(240, this.figure.clientWidth || 360);
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.right = this.width - MARGIN.right;
    this.bottom = this.height - MARGIN.bottom;
  }

  // Axes with round numbers; `rising` is whether the heights mean anything.
  axes(xs, ys, xlabel, rising = true) {
    this.x = scale(xs, [MARGIN.left, this.right]);
    this.y = scale(ys, [this.bottom, MARGIN.top]);
    const rows = rising ? ticks(...ys, 4) : { values: [] };
    const columns = ticks(...xs, Math.max(2, Math.min(6, this.width / 90)));
    const kind = (value) => (Math.abs(value) < rows.step * 1e-6 ? "zero" : "grid");
    axes(this, { left: MARGIN.left, right: this.right, bottom: this.bottom }, rows, columns, kind);
    if (xlabel) shape("text", this.svg, { x: this.right, y: this.height - 3, "text-anchor": "end" }, xlabel);
  }

  // What is drawn with which line, and its number at this step.
  legend(entries) {
    this.keys.replaceChildren();
    for (const { label, ink, dash = "", mark = "line", text } of entries) {
      const item = element("li", this.keys);
      item.className = `ink-${ink}`;
      const swatch = shape("svg", item, { viewBox: "0 0 24 12", "aria-hidden": "true" });
      if (mark === "line") shape("line", swatch, { class: mark, x1: 0, x2: 24, y1: 6, y2: 6, "stroke-dasharray": dash });
      else if (mark === "mark") shape("line", swatch, { class: mark, x1: 12, x2: 12, y1: 0, y2: 12 });
      else if (["wide", "near", "far"].includes(mark)) shape("rect", swatch, { class: mark, x: 0, width: 24, y: 0, height: 12 });
      else shape("circle", swatch, { class: mark, cx: 12, cy: 6, r: mark === "seen" ? 2 : 4 });
      element("span", item, `${label} ${text}`).className = "words";
    }
  }
}

// Lines over the steps. A line is { label, ink, dash, of: step → number }, a band { kind, label, of: step → [low, high] }
// from the second step on; `dots` are of steps, too. `ahead` is the dimension whose forecast is drawn.
class TimeChart extends Picture {
  constructor(view, panel, title, lines, { bands = [], dots, bare, note, ahead } = {}) {
    super(view, panel, title);
    Object.assign(this, { lines, bands, dots, bare, note, ahead });
    const [low, high] = this.extent(0, view.steps - 1);
    this.span = high - low || 1;
    const point = (event) => {
      const box = this.svg.getBoundingClientRect();
      const share = (event.clientX - box.x - MARGIN.left) / (this.right - MARGIN.left);
      go(Math.round(this.from + between(share, 0, 1) * (this.to - this.from)));
    };
    this.svg.addEventListener("pointerdown", point);
    this.svg.addEventListener("pointermove", (event) => event.buttons && point(event));
  }

  // Least and greatest number within the steps shown.
  extent(from, to) {
    let [low, high] = [Infinity, -Infinity];
    const widen = (value) => ([low, high] = [Math.min(low, value), Math.max(high, value)]);
    for (let t = from; t <= Math.min(to, this.view.steps - 1); t++) {
      for (const line of this.lines) widen(line.of(t));
      if (this.dots) widen(this.dots(t));
      if (t > 0) for (const band of this.bands) band.of(t).forEach(widen);
    }
    return low > high ? [0, 1] : [low, high];
  }

  draw(from, to, range) {
    Object.assign(this, { from, to });
    this.clear();
    this.axes([from, Math.max(to, from + 1)], range, "step");
    const last = Math.min(to, this.view.steps - 1);
    const steps = Array.from({ length: Math.max(0, last - from + 1) }, (_, i) => from + i);
    const path = (points) => points.map(([t, y]) => `${this.x(t).toFixed(1)} ${this.y(y).toFixed(1)}`).join("L");
    const known = steps.filter((t) => t > 0);
    for (const { kind, of } of known.length > 1 ? this.bands : []) {
      const edge = (side) => known.map((t) => [t, of(t)[side]]);
      const group = shape("g", this.svg, { class: `ink-${this.view.ink}` });
      shape("path", group, { class: kind, d: `M${path([...edge(0), ...edge(1).reverse()])}Z` });
    }
    if (this.dots) {
      const size = between(150 / (to - from + 1), 0.9, 2.2);
      const ring = steps.map((t) => `M${(this.x(t) - size).toFixed(1)} ${this.y(this.dots(t)).toFixed(1)}a${size} ${size} 0 1 0 ${2 * size} 0a${size} ${size} 0 1 0 ${-2 * size} 0`);
      shape("path", this.svg, { class: "seen", d: ring.join("") });
    }
    for (const line of this.lines) {
      const group = shape("g", this.svg, { class: `ink-${line.ink}` });
      const points = path(steps.map((t) => [t, line.of(t)]));
      if (points) shape("path", group, { class: "line", "stroke-dasharray": line.dash ?? "", d: `M${points}` });
    }
    this.next = inside(this);
    this.cross = shape("line", this.svg, { class: "cross", y1: MARGIN.top, y2: this.bottom });
  }

  // The forecast from this step on.
  foresee(at) {
    const { ahead, ahead_deviation: deviation } = this.view.arrays;
    this.next.replaceChildren();
    const of = (array) => (k) => array.at(at, k, this.ahead);
    fan(this.next, this.view.ink, ahead.shape[1], (k) => this.x(at + k + 1), this.y, of(ahead), of(deviation), "1 2.5");
  }

  show(step) {
    const at = Math.min(step, this.view.steps - 1);
    for (const end of ["x1", "x2"]) this.cross.setAttribute(end, this.x(at).toFixed(1));
    if (this.ahead !== undefined) this.foresee(at);
    const text = (of) => (this.bare ? "" : format(of(at), this.span));
    const dots = this.dots ? [{ label: "observed", ink: "grey", mark: "seen", text: text(this.dots) }] : [];
    const bands = this.bands.filter((band) => band.label).map(({ kind, label, of }) => {
      const [low, high] = at > 0 ? of(at) : [NaN, NaN];
      const words = at > 0 ? `${format((low + high) / 2, this.span)} ± ${format((high - low) / 2, this.span)}` : "";
      return { label, ink: this.view.ink, mark: kind, text: words };
    });
    this.legend([...dots, ...this.lines.map((line) => ({ ...line, text: text(line.of) })), ...bands]);
    if (this.note) element("li", this.keys, this.note(at, this.span));
  }
}

// Q(s, ·) − V(s) along one dimension of the action.
class Parabola extends Picture {
  constructor(view) {
    super(view, "stage", "", 210);
    this.svg.classList.add("still");
  }

  // The parabola through its values at both ends and in the middle; `a` is −1 and 1 at the ends.
  cost(step, d, a) {
    const [low, middle, high] = [0, 1, 2].map((i) => this.view.arrays.advantage.at(step, d, i));
    return (low * a * (a - 1)) / 2 - middle * (a + 1) * (a - 1) + (high * a * (a + 1)) / 2;
  }

  // What the worst end of the action range costs, the height of the picture.
  worst(step, d) {
    const t = Math.min(step, this.view.steps - 1);
    return this.view.has("advantage") ? Math.min(this.cost(t, d, -1), this.cost(t, d, 1)) : 0;
  }

  show(step, d, shown) {
    const { arrays, ink } = this.view;
    const t = Math.min(step, this.view.steps - 1);
    const [low, high] = [data.low[d], data.high[d]];
    const room = (high - low) / 4;
    const [from, to] = [low - room, high + room];
    const what = this.view.has("advantage") ? "Q(s, a) − V(s)" : "The action";
    this.figure.firstChild.textContent = what + (data.low.length > 1 ? `, dimension ${d + 1}` : "");
    this.clear();
    const worst = Math.min(...shown.map((each) => each.worst(step, d))) || -1; // agents share the axis
    const y = [1.1 * worst, -0.3 * worst];
    const frame = scale([from, to], [MARGIN.left, this.right]);
    const box = { x: frame(low), width: frame(high) - frame(low), y: MARGIN.top, height: this.bottom - MARGIN.top };
    shape("rect", this.svg, { class: "box", ...box });
    this.axes([from, to], y, "action", this.view.has("advantage"));
    const group = shape("g", this.svg, { class: `ink-${ink}` });
    if (this.view.has("advantage")) this.curve(group, t, d, [from, to]);
    const marks = [["action", "best action", ink, "dot"], ["executed", "taken", "grey", "mark"]];
    const entries = marks.map(([name, label, colour, mark]) => {
      const value = arrays[name].at(t, d);
      const x = frame(value);
      const height = this.view.has("advantage") ? this.y(this.cost(t, d, this.unit(value, d))) : this.bottom - 20;
      const at = shape("g", this.svg, { class: `ink-${colour}` });
      if (mark === "dot") shape("circle", at, { class: mark, cx: x, cy: height, r: 5 });
      else shape("line", at, { class: mark, x1: x, x2: x, y1: this.bottom, y2: this.bottom - 14 });
      return { label, ink: colour, mark, text: format(value, high - low) };
    });
    if (this.view.has("vertex")) {
      entries.push({ label: "peak", ink, mark: "ring", text: this.peak(group, arrays.vertex.at(t, d), t, d, [from, to], high - low) });
    }
    this.legend(entries);
    element("li", this.keys, `V(s) ${format(arrays.value.at(t), 10)}`);
  }

  unit(value, d) {
    return (2 * (value - data.low[d])) / (data.high[d] - data.low[d]) - 1;
  }

  curve(group, t, d, [from, to]) {
    const inside = shape("svg", group, { x: MARGIN.left, y: MARGIN.top, width: this.right - MARGIN.left, height: this.bottom - MARGIN.top });
    const part = (start, end, kind) => {
      const points = Array.from({ length: 41 }, (_, i) => start + ((end - start) * i) / 40).map((a) => {
        const value = this.cost(t, d, this.unit(a, d));
        return `${(this.x(a) - MARGIN.left).toFixed(1)} ${between(this.y(value) - MARGIN.top, -1e4, 1e4).toFixed(1)}`;
      });
      shape("path", inside, { class: kind, d: `M${points.join("L")}` });
    };
    part(from, data.low[d], "beyond");
    part(data.low[d], data.high[d], "line");
    part(data.high[d], to, "beyond");
  }

  // A ring at the peak, if it is within the picture; where it is, in words.
  peak(group, vertex, t, d, [from, to], extent) {
    const height = this.y(this.cost(t, d, this.unit(vertex, d)));
    const seen = vertex >= from && vertex <= to && height >= MARGIN.top;
    if (seen) shape("circle", group, { class: "ring", cx: this.x(vertex), cy: height, r: 8 });
    return `${format(vertex, extent)}${seen ? "" : vertex < from ? " (left of the picture)" : vertex > to ? " (right of the picture)" : " (above the picture)"}`;
  }
}

// A row for each dimension: the members and the outcome, in predicted standard deviations from the predicted mean.
class Members extends Picture {
  constructor(view) {
    super(view, "members", "Prediction of the next observation", 30 + 26 * data.names.length + MARGIN.bottom);
    this.svg.classList.add("still");
  }

  show(step) {
    const { predicted, deviation, members, following } = this.view.arrays;
    const t = Math.min(step, this.view.steps - 1);
    const end = 4;
    this.clear();
    const x = scale([-end, end], [MARGIN.left + 12, this.right - 8]);
    const group = shape("g", this.svg, { class: `ink-${this.view.ink}` });
    for (const [size, kind] of [[2, "wide"], [1, "band"]]) {
      const side = { x: x(-size), width: x(size) - x(-size), y: MARGIN.top, height: this.bottom - MARGIN.top };
      shape("rect", group, { class: kind, ...side });
    }
    for (const value of [-4, -2, -1, 0, 1, 2, 4]) {
      shape("text", this.svg, { x: x(value), y: this.bottom + 16, "text-anchor": "middle" }, value ? `${value}σ`.replace("-", "−") : "mean");
    }
    data.names.forEach((name, i) => {
      const y = MARGIN.top + 28 + 26 * i;
      const place = (value) => x(between((value - predicted.at(t, i)) / deviation.at(t, i), -end, end));
      shape("text", this.svg, { x: 0, y: y + 4 }, name);
      shape("line", this.svg, { class: "grid", x1: MARGIN.left, x2: this.right, y1: y, y2: y });
      shape("circle", this.svg, { class: "seen came", cx: place(following.at(t, i)), cy: y, r: 5 });
      for (let k = 0; k < members.shape[1]; k++) {
        shape("circle", group, { class: "ring member", cx: place(members.at(t, k, i)), cy: y, r: 4 });
      }
    });
  }
}
