// Draws the charts of a report from the data in its page. No libraries, no requests.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const form = document.getElementById("controls");
const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 250;
const MARGIN = { top: 10, right: 16, bottom: 40, left: 60 };
const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const MISSING = 4095;

const agents = new Map(data.agents.map((agent) => [agent.name, agent]));
const metrics = new Map(data.metrics.map((metric) => [metric.name, metric]));

// What the reader has chosen; the form is the only place that knows.
function chosen() {
  const fields = new FormData(form);
  return {
    agents: new Set(fields.getAll("agent")),
    metric: fields.get("metric"),
    preset: fields.get("preset") ?? data.presets[0],
    seeds: fields.has("seeds"),
    axis: fields.get("axis") ?? "full",
    median: fields.get("line") === "median",
  };
}

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

// Zero and the powers of ten beyond the linear part, on either side.
function powers(low, high, linear) {
  const found = [0];
  for (let size = linear; size <= Math.max(-low, high); size *= 10) found.push(size, -size);
  return { step: linear, values: found.filter((value) => value >= low && value <= high) };
}

function scale(from, to) {
  return (value) => to[0] + ((value - from[0]) / (from[1] - from[0])) * (to[1] - to[0]);
}

// Two characters per value, in steps of 1/4094 of the range: plenty for a thin line.
function decode(text, [low, high]) {
  const values = [];
  for (let i = 0; i < text.length; i += 2) {
    const level = DIGITS.indexOf(text[i]) * 64 + DIGITS.indexOf(text[i + 1]);
    values.push(level === MISSING ? null : low + (level / (MISSING - 1)) * (high - low));
  }
  return values;
}

// A path through the points that are there; it is broken where one is missing.
function path(xs, ys, x, y) {
  let open = false;
  let text = "";
  xs.forEach((value, i) => {
    if (ys[i] === null) return void (open = false);
    text += `${open ? "L" : "M"}${x(value).toFixed(1)} ${y(ys[i]).toFixed(1)}`;
    open = true;
  });
  return text;
}

// The value at a share of the way through sorted values, between neighbours where need be.
function quantile(sorted, share) {
  const at = share * (sorted.length - 1);
  const below = Math.floor(at);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (at - below) * (sorted[above] - sorted[below]);
}

// Median and middle half of the seeds that did not diverge, in place of mean and interval.
function middle(curve) {
  const seeds = curve.each.map((seed) => decode(seed, curve.range)).filter((seed) => seed.at(-1) !== null);
  const at = (i) => seeds.map((seed) => seed[i]).filter((value) => value !== null).sort((a, b) => a - b);
  const rows = curve.x.map((_, i) => at(i));
  const each = (share) => rows.map((row) => (row.length ? quantile(row, share) : null));
  return { ...curve, mean: each(0.5), low: each(0.25), high: each(0.75), median: true };
}

function interval(curve) {
  const edge = (sign) => curve.mean.map((mean, i) => (mean === null ? null : mean + sign * curve.spread[i]));
  return { ...curve, low: edge(-1), high: edge(1) };
}

// Linear near zero, logarithmic further away.
function signed(linear) {
  return (value) => Math.sign(value) * Math.log10(1 + Math.abs(value) / linear);
}

