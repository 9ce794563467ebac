// What a pointer and the keyboard do with a chart.
const DRAGGED = 6; // pixels from which a press is a selection

function placeOf(chart, event) {
  const box = chart.canvas.getBoundingClientRect();
  return { x: ((event.clientX - box.left) * chart.wide) / box.width, y: ((event.clientY - box.top) * chart.high) / box.height };
}

function listen(chart) {
  const { canvas } = chart;
  let from = null, frame = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "touch" && event.button === 0) from = placeOf(chart, event);
  });
  canvas.addEventListener("pointermove", (event) => {
    const place = placeOf(chart, event);
    if (from && Math.hypot(place.x - from.x, place.y - from.y) > DRAGGED) {
      canvas.setPointerCapture(event.pointerId);
      frame = frame || canvas.appendChild(svg("rect", { class: "frame" }));
      furnished(frame, {
        x: Math.min(from.x, place.x), y: Math.min(from.y, place.y),
        width: Math.abs(place.x - from.x), height: Math.abs(place.y - from.y),
      });
      return;
    }
    const found = chart.nearest(place.x, place.y);
    if (found && !from) chart.show(found);
  });
  canvas.addEventListener("pointerup", (event) => {
    const place = placeOf(chart, event), begin = from;
    const drawn = frame !== null;
    from = null;
    frame = frame && frame.remove();
    frame = null;
    if (drawn) select(chart, begin, place);
  });
  canvas.addEventListener("pointercancel", () => { from = null; });
  canvas.addEventListener("pointerleave", () => { if (!from) chart.hide(); });
  canvas.addEventListener("dblclick", () => chart.zoom(null));
  canvas.addEventListener("blur", () => chart.hide());
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (keyed(chart, event.key)) event.preventDefault();
  });
}

// A selection that is wide but not high keeps all values of its rounds in view.
function select(chart, from, to) {
  const across = [from.x, to.x].map((x) => chart.fromX(clamp(x, LEFT, chart.right))).sort((a, b) => a - b);
  const up = [from.y, to.y].map((y) => chart.fromY(clamp(y, TOP, chart.high - BOTTOM))).sort((a, b) => a - b);
  const wide = Math.abs(from.x - to.x) > 2 * DRAGGED, high = Math.abs(from.y - to.y) > 2 * DRAGGED;
  if (!wide && !high) return;
  chart.zoom({ x: wide ? across : chart.range.x, y: high ? up : null });
}

function keyed(chart, key) {
  const shown = chart.shown();
  if (!shown.length) return false;
  const current = chart.current && shown.includes(chart.current.series) ? chart.current : null;
  const begin = { series: shown.reduce((a, b) => (lastOf(b) > lastOf(a) ? b : a)) };
  begin.at = begin.series.x.length - 1;
  const { series, at } = current || begin;
  const move = (to) => chart.show(current ? { series, at: clamp(to, 0, series.x.length - 1) } : begin);
  const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: series.x.length - 1 };
  if (key in moves) move(moves[key]);
  else if (key === "ArrowUp" || key === "ArrowDown") chart.show(current ? besideOf(chart, current, key === "ArrowUp" ? 1 : -1) : begin);
  else if (key === "+" || key === "=") narrowed(chart, { series, at }, 0.5);
  else if (key === "-") narrowed(chart, { series, at }, 2);
  else if (key === "0" || key === "Escape") chart.zoom(null);
  else return false;
  return true;
}

// The line whose value in this round is the next one above (1) or below (-1).
function besideOf(chart, { series, at }, way) {
  const found = chart.shown()
    .map((one) => ({ series: one, at: chart.about.points ? 0 : one.x.indexOf(series.x[at]) }))
    .filter((one) => one.at >= 0)
    .sort((a, b) => a.series.y[a.at] - b.series.y[b.at]);
  return found[clamp(found.findIndex((one) => one.series === series) + way, 0, found.length - 1)];
}

function narrowed(chart, { series, at }, factor) {
  const whole = chart.around(chart.shown());
  const part = (range, centre, limits) => {
    const half = ((range[1] - range[0]) * factor) / 2;
    return [Math.max(limits[0], centre - half), Math.min(limits[1], centre + half)];
  };
  const view = { x: part(chart.range.x, series.x[at], whole.x), y: part(chart.range.y, series.y[at], whole.y) };
  const all = ["x", "y"].every((axis) => view[axis][0] <= whole[axis][0] && view[axis][1] >= whole[axis][1]);
  chart.zoom(all ? null : view);
  chart.show({ series, at });
}
