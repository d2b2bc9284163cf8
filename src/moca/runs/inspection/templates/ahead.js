// What the agent expects next, from the step that is current: over time, and from the side.

// A part of a picture in the same coordinates, cut off at its frame.
function inside(chart) {
  const [width, height] = [chart.right - MARGIN.left, chart.bottom - MARGIN.top];
  const box = { x: MARGIN.left, y: MARGIN.top, width, height };
  return shape("svg", chart.svg, { ...box, viewBox: `${MARGIN.left} ${MARGIN.top} ${width} ${height}` });
}

// A line with its bands: `mean` and `deviation` of the k-th step, which lies at x(k), from the first on.
function fan(parent, ink, count, x, y, mean, deviation, dash = "") {
  const group = shape("g", parent, { class: `ink-${ink}` });
  const steps = Array.from({ length: count }, (_, k) => k);
  const limited = (value) => between(y(value), -1e4, 1e4).toFixed(1);
  const path = (of) => steps.map((k) => `${x(k).toFixed(1)} ${limited(of(k))}`);
  for (const [size, kind] of deviation ? [[data.reach[0][1], "wide"], [data.reach[0][0], "band"]] : []) {
    const [low, high] = [-size, size].map((times) => path((k) => mean(k) + times * deviation(k)));
    shape("path", group, { class: `${kind} foreseen`, d: `M${[...low, ...high.reverse()].join("L")}Z` });
  }
  shape("path", group, { class: "line foreseen", "stroke-dasharray": dash, d: `M${path(mean).join("L")}` });
}

// One number around the present: what was, what is expected, what then happened. `came` is of a step, `mean` and
// `deviation` are of a step and how many steps ahead of it.
class Ahead extends Picture {
  constructor(view, title, came, mean, deviation) {
    super(view, "ahead", title);
    this.svg.classList.add("still");
    const all = Array.from({ length: view.steps }, (_, t) => came(t));
    Object.assign(this, { came, mean, deviation, ends: [Math.min(...all), Math.max(...all)] });
  }

  // The axis, shared with the same pictures of other agents.
  share(alike) {
    const all = alike.flatMap((each) => each.ends);
    const [low, high] = [Math.min(...all), Math.max(...all)];
    const room = (high - low) * 0.15 || Math.max(1e-3, Math.abs(low) / 10);
    Object.assign(this, { range: [low - room, high + room], extent: high - low || 1 });
  }

  show(step) {
    const t = Math.min(step, this.view.steps - 1);
    const count = this.view.arrays.ahead.shape[1];
    this.clear();
    this.axes([-count - 0.5, count + 0.5], this.range, "decisions from now");
    const part = inside(this);
    fan(part, this.view.ink, count, (k) => this.x(k + 1), this.y, (k) => this.mean(t, k), this.deviation && ((k) => this.deviation(t, k)));
    const from = Math.max(0, t - count);
    const past = Array.from({ length: t - from + 1 }, (_, i) => `${this.x(from + i - t).toFixed(1)} ${this.y(this.came(from + i)).toFixed(1)}`);
    shape("path", shape("g", part, { class: "ink-grey" }), { class: "line", d: `M${past.join("L")}` });
    for (let k = 1; k <= count && t + k < this.view.steps; k++) {
      shape("circle", part, { class: "happened", cx: this.x(k), cy: this.y(this.came(t + k)), r: 2.4 });
    }
    shape("line", this.svg, { class: "cross", x1: this.x(0), x2: this.x(0), y1: MARGIN.top, y2: this.bottom });
    const last = Math.min(count, this.view.steps - 1 - t);
    const words = (k) => `${format(this.mean(t, k - 1), this.extent)}${this.deviation ? ` ± ${format(this.deviation(t, k - 1), this.extent)}` : ""}`;
    this.legend([
      { label: `expected in ${count}:`, ink: this.view.ink, text: words(count) },
      { label: "what then happened:", ink: "grey", mark: "ring", text: last === count ? format(this.came(t + count), this.extent) : "the episode is over" },
    ]);
  }
}

// The task from the side, with the places that its points are expected at.
class SideView extends Picture {
  constructor(view) {
    super(view, "ahead", "From the side", 240);
    this.svg.classList.add("still");
    const { points } = view.arrays;
    const all = Array.from({ length: view.steps }, (_, t) => view.sketch.points.map((_, p) => [0, 1].map((i) => points.at(t, p, i)))).flat();
    this.half = Math.max(view.sketch.rail, ...all.map(([x]) => Math.abs(x))) + 0.25;
    this.ends = [Math.min(...all.map(([, z]) => z)) - 0.2, Math.max(...all.map(([, z]) => z)) + 0.2];
  }

  share(alike) {
    this.half = Math.max(...alike.map((each) => each.half));
    this.ends = [0, 1].map((end) => Math[end ? "max" : "min"](...alike.map((each) => each.ends[end])));
  }

  show(step) {
    const { arrays, sketch, ink } = this.view;
    const t = Math.min(step, this.view.steps - 1);
    const width = Math.max(240, this.figure.clientWidth || 360);
    const unit = Math.min(width / (2 * this.half), 300 / (this.ends[1] - this.ends[0]));
    this.height = unit * (this.ends[1] - this.ends[0]);
    this.clear();
    const [x, y] = [(value) => width / 2 + unit * value, (value) => unit * (this.ends[1] - value)];
    const last = sketch.points.length - 1;
    const place = (p) => [x(arrays.points.at(t, p, 0)), y(arrays.points.at(t, p, 1))];
    const [first, tip] = [place(0), place(last)];
    if (sketch.rail) shape("line", this.svg, { class: "rail", x1: x(-sketch.rail), x2: x(sketch.rail), y1: first[1], y2: first[1] });
    const group = shape("g", this.svg, { class: `ink-${ink}` });
    const count = arrays.ahead.shape[1];
    for (const [size, kind] of [[data.reach[1][1], "far"], [data.reach[1][0], "near"]]) {
      const level = shape("g", group, { class: kind });
      for (let k = 0; k < count; k++) for (let p = 0; p <= last; p++) this.ellipse(level, t, k, p, size, x, y, unit);
    }
    const path = Array.from({ length: count }, (_, k) => [0, 1].map((i) => [x, y][i](arrays.ahead_points.at(t, k, last, i)).toFixed(1)).join(" "));
    shape("path", group, { class: "line foreseen", d: `M${path.join("L")}` });
    const [wide, high] = sketch.box.map((side) => 2 * unit * side);
    shape("rect", this.svg, { class: "body", x: first[0] - wide / 2, y: first[1] - high / 2, width: wide, height: high });
    shape("line", this.svg, { class: "rod", x1: first[0], y1: first[1], x2: tip[0], y2: tip[1] });
    for (let k = 1; k <= count && t + k < this.view.steps; k++) {
      shape("circle", this.svg, { class: "happened", cx: x(arrays.points.at(t + k, last, 0)), cy: y(arrays.points.at(t + k, last, 1)), r: 2.4 });
    }
    this.legend([
      { label: `${sketch.points[last]}: expected`, ink, text: "" },
      { label: "68 %", ink, mark: "near", text: "" },
      { label: "95 %", ink, mark: "far", text: "" },
      { label: "what then happened", ink: "grey", mark: "ring", text: "" },
    ]);
  }

  // Half axes and direction of an ellipse by its covariance [[a, b], [b, c]]; the picture has y downwards.
  ellipse(parent, t, k, p, size, x, y, unit) {
    const { ahead_points: points, ahead_spreads: spreads } = this.view.arrays;
    const [a, b, c] = [0, 1, 2].map((i) => spreads.at(t, k, p, i));
    const apart = Math.hypot((a - c) / 2, b);
    const [rx, ry] = [1, -1].map((sign) => Math.max(1, unit * size * Math.sqrt(Math.max(0, (a + c) / 2 + sign * apart))));
    const [cx, cy] = [x(points.at(t, k, p, 0)), y(points.at(t, k, p, 1))];
    const turn = (-90 / Math.PI) * Math.atan2(2 * b, a - c);
    shape("ellipse", parent, { cx, cy, rx, ry, transform: `rotate(${turn.toFixed(1)} ${cx.toFixed(1)} ${cy.toFixed(1)})` });
  }
}

// Pictures of the forecast of an agent that has one.
function aheadCharts(view) {
  const { outcome, ahead, ahead_deviation: deviation, reward, ahead_reward: rewards } = view.arrays;
  const made = view.has("points") ? [new SideView(view)] : [];
  data.names.slice(0, 8).forEach((name, i) => {
    made.push(new Ahead(view, name, (t) => outcome.at(t, i), (t, k) => ahead.at(t, k, i), (t, k) => deviation.at(t, k, i)));
  });
  if (view.has("ahead_reward")) made.push(new Ahead(view, "Reward of a decision", (t) => reward.at(Math.max(0, t - 1)), (t, k) => rewards.at(t, k)));
  return made;
}
