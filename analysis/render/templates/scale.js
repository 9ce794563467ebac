// Numbers of an axis: round steps, and how values are written.

function roundStep(span, count) {
  const rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
}

function ticks([low, high], count, whole) {
  let step = roundStep(high - low, count);
  if (whole) step = Math.max(1, Math.round(step));
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) found.push(i * step);
  return { step, values: found };
}

function written(value, percent, step) {
  const shown = percent ? 100 * value : value;
  const digits = step === undefined ? (percent ? 2 : 4) : clamp(-Math.floor(Math.log10(step * (percent ? 100 : 1)) + 1e-9), 0, 6);
  const text = step === undefined && !percent ? String(+shown.toFixed(digits)) : shown.toFixed(digits);
  return `${text.replace("-", "−")}${percent ? " %" : ""}`;
}

// Places near `ends`, in the same order and at least `gap` apart, between `low` and `high` if they fit there.
function spread(ends, gap, low, high) {
  const order = [...ends.keys()].sort((a, b) => ends[a] - ends[b]);
  const places = [];
  let floor = low;
  for (const i of order) {
    places[i] = Math.max(ends[i], floor);
    floor = places[i] + gap;
  }
  let ceiling = high;
  for (const i of order.reverse()) {
    places[i] = Math.min(places[i], ceiling);
    ceiling = places[i] - gap;
  }
  return places;
}

function padded([low, high], share) {
  const span = high - low || Math.abs(high) * 0.1 || 1;
  return [low - span * share, high + span * share];
}
