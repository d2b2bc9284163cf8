// Draws the charts of a report from the data in its page. No libraries, no requests.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const form = document.getElementById("controls");
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

