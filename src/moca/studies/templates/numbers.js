// Zero and the powers of ten beyond the linear part, on either side.
function powers(low, high, linear) {
  const found = [0];
  for (let size = linear; size <= Math.max(-low, high); size *= 10) found.push(size, -size);
  return { step: linear, values: found.filter((value) => value >= low && value <= high) };
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

