const SVG = "http://www.w3.org/2000/svg";

function element(name, parent, text = "") {
  const made = document.createElement(name);
  made.textContent = text;
  parent.append(made);
  return made;
}

function shape(name, parent, attributes, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  parent.append(made);
  return made;
}

// Numbers: as many decimals as an axis of this extent can tell apart.
function decimals(extent) {
  return Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(extent))));
}

function format(value, extent) {
  if (extent < 1e-4 || extent >= 1e7) return value.toExponential(2).replace("-", "−");
  const places = decimals(extent);
  const rounded = +value.toFixed(places) + 0; // no minus before a zero
  return rounded.toLocaleString("en-GB", { minimumFractionDigits: places, maximumFractionDigits: places }).replace("-", "−");
}

function formatTick(value, step) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toFixed(2)}M`.replace("-", "−");
  if (size >= 1e4) return `${+(value / 1e3).toFixed(1)}k`.replace("-", "−");
  if (step < 1e-4) return value === 0 ? "0" : value.toExponential(0).replace("-", "−");
  return String(+value.toFixed(6)).replace("-", "−");
}

// Round numbers from low to high, about as many as asked for.
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return { step, values: found };
}

function scale(from, to) {
  const span = from[1] - from[0] || 1;
  return (value) => to[0] + ((value - from[0]) / span) * (to[1] - to[0]);
}

// Lines across a chart at the numbers in `rows`, and marks below it at those in `columns`.
function axes(chart, { left, right, bottom }, rows, columns, kind = () => "grid") {
  for (const value of rows.values) {
    const y = chart.y(value);
    shape("line", chart.svg, { class: kind(value), x1: left, x2: right, y1: y, y2: y });
    shape("text", chart.svg, { x: left - 6, y: y + 4, "text-anchor": "end" }, formatTick(value, rows.step));
  }
  for (const value of columns.values) {
    const x = chart.x(value);
    shape("line", chart.svg, { class: "frame", x1: x, x2: x, y1: bottom, y2: bottom + 4 });
    shape("text", chart.svg, { x, y: bottom + 17, "text-anchor": "middle" }, formatTick(value, columns.step));
  }
  shape("line", chart.svg, { class: "frame", x1: left, x2: right, y1: bottom, y2: bottom });
}

// Text keeps its size when a chart gets wider or narrower: it is drawn anew.
function redrawWhenResized() {
  const main = document.querySelector("main");
  let width = 0;
  new ResizeObserver(() => {
    if (main.clientWidth === width) return;
    width = main.clientWidth;
    redraw();
  }).observe(main);
}
