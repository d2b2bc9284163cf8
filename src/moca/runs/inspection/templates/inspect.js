
// The page as a whole: which charts there are, which step is shown, and playing.
const form = document.getElementById("controls");
const slider = document.getElementById("step");
const button = document.getElementById("play");
const steps = Math.max(...views.map((view) => view.steps));
const times = []; // groups of charts over time, one chart per agent, that share their y axis
const stills = []; // pictures of one step
const parabolas = [];
let current = 0;

// The same chart for every agent that has what it shows.
function charts(needs, make) {
  const made = views.filter((view) => needs.every(view.has)).map(make);
  if (made.length) times.push(made);
}

function root(values) {
  return Math.sqrt(values.reduce((sum, value) => sum + value * value, 0) / values.length);
}

// Root mean square over the episode.
function size(view, name) {
  return root(Array.from({ length: view.steps }, (_, t) => view.arrays[name].at(t)));
}

function average(view, name, t) {
  const array = view.arrays[name];
  return data.names.reduce((sum, _, i) => sum + array.at(t, i), 0) / data.names.length;
}

function build() {
  const one = (name) => (view) => (t) => view.arrays[name].at(t);
  const [value, expected, bias, gap, biasGap] = ["value", "expected", "bias", "action_gap", "ce_gap"].map(one);
  charts([], (view) => {
    const lines = [{ label: "V(s)", ink: "grey", of: value(view) }];
    if (view.has("expected")) {
      const certain = (t) => expected(view)(t) - bias(view)(t);
      lines.push({ label: "E[V(s′)]", ink: "moca", of: expected(view) }, { label: "V(E[s′])", ink: "ce", dash: "5 3", of: certain });
    }
    return new TimeChart(view, "value", "Value", lines);
  });
  charts(["bias"], (view) => {
    return new TimeChart(view, "value", "Gap E[V(s′)] − V(E[s′])", [{ label: "gap", ink: view.ink, of: bias(view) }]);
  });
  charts(["action_gap"], (view) => {
    const [whole, part] = [size(view, "action_gap"), size(view, "ce_gap")];
    const lines = [
      { label: "action gap", ink: "grey", of: gap(view) },
      { label: "gap of the bias", ink: "ce", dash: "5 3", of: biasGap(view) },
    ];
    const note = () => `Over the episode (root mean square): ${format(whole, whole)} and ${format(part, whole)}, a share of ${format((100 * part) / whole, 100)} %.`;
    return new TimeChart(view, "stakes", "From the least to the greatest action", lines, { note });
  });
  data.names.forEach((name, i) => charts([], (view) => stateChart(view, name, i)));
  for (const view of views.filter((each) => each.has("members"))) stills.push(new Members(view));
  charts(["epistemic"], (view) => {
    const lines = [
      { label: "chance", ink: "grey", of: (t) => average(view, "aleatoric", t) },
      { label: "disagreement", ink: "ce", dash: "5 3", of: (t) => average(view, "epistemic", t) },
    ];
    return new TimeChart(view, "members", "Predicted standard deviation", lines);
  });
  for (const view of views) {
    parabolas.push(new Parabola(view));
    if (view.has("ahead")) stills.push(...aheadCharts(view));
    if (document.querySelector(`[data-view="${view.number}"] [data-panel=overview]`)) times.push([overview(view)]);
  }
  for (const still of stills) still.share?.(stills.filter((each) => each.title === still.title));
}

// One dimension of the state: the truth, observations, the belief with its band of one deviation, and the band of the
// observation as predicted a step before. Without a filter, the middle of that band is the line. The forecast from the
// current step lies over them.
function stateChart(view, name, i) {
  const { truth, observed, believed, uncertainty, predicted, deviation } = view.arrays;
  const filtered = view.has("uncertainty");
  const foreseen = (t) => (t > 0 ? predicted.at(t - 1, i) : observed.at(0, i));
  const lines = view.has("truth") ? [{ label: "truth", ink: "grey", dash: "5 3", of: (t) => truth.at(t, i) }] : [];
  if (filtered) lines.push({ label: "belief", ink: view.ink, of: (t) => believed.at(t, i) });
  else if (view.has("predicted")) lines.push({ label: "predicted a step before", ink: view.ink, of: foreseen });
  const around = (middle, width, lag) => (t) => [-1, 1].map((sign) => middle.at(t - lag, i) + sign * width.at(t - lag, i));
  const extra = { dots: (t) => observed.at(t, i), bands: [], ahead: view.has("ahead") ? i : undefined };
  if (view.has("predicted")) {
    const [kind, label] = filtered ? ["wide", "predicted a step before"] : ["band", ""];
    extra.bands.push({ kind, label, of: around(predicted, deviation, 1) });
    if (filtered) extra.bands.push({ kind: "band", label: "", of: around(believed, uncertainty, 0) });
    extra.note = (t, extent) => `next predicted ${format(predicted.at(t, i), extent)} ± ${format(deviation.at(t, i), extent)}`;
  }
  return new TimeChart(view, "state", name, lines, extra);
}

// Where there is no film: every dimension of the state over its own range.
function overview(view) {
  const inks = ["moca", "ce", "sac", "bnaf", "mc", "mc16", "naf", "mixture", "mc1"];
  const lines = data.names.map((name, i) => {
    const all = Array.from({ length: view.steps }, (_, t) => view.arrays.observed.at(t, i));
    const place = scale([Math.min(...all), Math.max(...all)], [0, 1]);
    return { label: name, ink: inks[i % inks.length], of: (t) => place(all[t]) };
  });
  return new TimeChart(view, "overview", "State", lines, { bare: true });
}

// Everything anew: another width, window or choice of agents.
function redraw() {
  const shown = form.elements.shown?.value ?? "all";
  document.body.classList.toggle("alone", views.length === 1 || shown !== "all");
  for (const cell of document.querySelectorAll(".view")) cell.hidden = shown !== "all" && cell.dataset.view !== shown;
  const window = Number(form.elements.window.value);
  const from = window ? Math.floor(current / window) * window : 0;
  const to = window ? from + window : steps - 1;
  for (const group of times) {
    const seen = group.filter((chart) => !chart.figure.closest(".view").hidden);
    const ends = seen.flatMap((chart) => chart.extent(from, to));
    const range = padded([Math.min(...ends), Math.max(...ends)]);
    for (const chart of seen) chart.draw(from, to, range);
  }
  drawn = from;
  show();
}

let drawn = 0; // the first step in the charts

// The step that is current, in every chart and film.
function show() {
  const dimension = Number(form.elements.dimension?.value ?? 0);
  const visible = (chart) => !chart.figure.closest(".view").hidden;
  for (const chart of times.flat().filter(visible)) chart.show(current);
  for (const chart of stills.filter(visible)) chart.show(current);
  for (const chart of parabolas.filter(visible)) chart.show(current, dimension, parabolas.filter(visible));
  const rewards = views.map((view) => format(view.arrays.reward.at(Math.min(current, view.steps - 1)), 1));
  document.getElementById("now").textContent = `step ${current} of ${steps - 1}, reward ${rewards.join(" and ")}`;
  for (const film of document.querySelectorAll("video")) seek(film);
}

// The picture of this step, by the middle of its time; a film that is still looking for one is asked again when it has it.
function seek(film) {
  const view = views[film.closest(".view").dataset.view];
  const wanted = ((between(current, 0, view.steps - 1) + 0.5) / view.steps) * film.duration;
  if (!film.seeking && Number.isFinite(wanted) && Math.abs(film.currentTime - wanted) > 1e-3) film.currentTime = wanted;
}

function go(step) {
  current = between(step, 0, steps - 1);
  slider.value = current;
  const window = Number(form.elements.window.value);
  if (window && Math.floor(current / window) * window !== drawn) redraw();
  else show();
}

let playing = null;

function toggle() {
  if (playing !== null) {
    cancelAnimationFrame(playing);
    playing = null;
  } else {
    if (current === steps - 1) go(0);
    let before = performance.now();
    const tick = (now) => {
      const done = Math.floor((now - before) / 25); // 40 steps a second
      if (done > 0) {
        before += done * 25;
        go(current + done);
      }
      if (current === steps - 1) return toggle();
      playing = requestAnimationFrame(tick);
    };
    playing = requestAnimationFrame(tick);
  }
  button.textContent = playing === null ? "Play" : "Pause";
  button.setAttribute("aria-pressed", playing !== null);
}

build();
button.addEventListener("click", toggle);
slider.addEventListener("input", () => go(Number(slider.value)));
form.addEventListener("change", (event) => event.target !== slider && redraw());
form.addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, button") || event.altKey || event.ctrlKey || event.metaKey) return;
  const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (move) go(current + move);
  else if (event.key === " ") toggle();
  else return;
  event.preventDefault();
});
for (const film of document.querySelectorAll("video")) {
  for (const event of ["loadedmetadata", "seeked"]) film.addEventListener(event, () => seek(film));
}

redrawWhenResized();
redraw();
