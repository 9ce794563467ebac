// One pair of axes: it is drawn again whenever its size, its view or the shown series change.
const GAP = 15; // pixels between two names
const LEADING = 12; // lines that are named beside the axes; the others are named at the pointer
const LEFT = 54, TOP = 26, BOTTOM = 40;

const lastOf = (series) => series.y[series.y.length - 1];

class Chart {
  constructor(about, group) {
    this.about = about;
    this.group = group;
    this.view = null;
    this.frame = html("div", { class: "chart" });
    this.canvas = svg("svg", { tabindex: "0", role: "application", "aria-roledescription": "chart" });
    this.tip = html("div", { class: "tip", role: "status", hidden: "" });
    this.whole = button("Reset zoom", () => this.zoom(null), { class: "whole", hidden: "" });
    this.frame.append(this.canvas, this.tip, this.whole);
    const keys = "Arrow keys move along the lines and between them, plus and minus zoom, 0 shows all.";
    this.canvas.setAttribute("aria-label", `${about.title || about.beside || "Chart"}, ${about.below}. ${keys}`);
    listen(this);
  }

  shown() {
    return this.about.series.filter((one) => one.y.length && !this.group.hidden.has(one.label));
  }

  // The range of the values that are shown, or what was zoomed to.
  ranges() {
    const found = this.view || this.around(this.shown());
    return { x: found.x, y: found.y || this.around(this.shown(), found.x).y };
  }

  around(series, inside = [-Infinity, Infinity]) {
    const x = [Infinity, -Infinity], y = [Infinity, -Infinity];
    const meet = (range, value) => {
      range[0] = Math.min(range[0], value);
      range[1] = Math.max(range[1], value);
    };
    for (const one of series) {
      one.x.forEach((place, i) => {
        if (place < inside[0] || place > inside[1]) return;
        meet(x, place);
        for (const values of [one.y, one.low, one.high]) if (values.length) meet(y, values[i]);
      });
      for (const [x0, y0, x1, y1] of one.bars) [[x, x0], [x, x1], [y, y0], [y, y1]].forEach((pair) => meet(...pair));
    }
    if (x[0] > x[1]) return { x: [0, 1], y: [0, 1] };
    return { x: this.about.points ? padded(x, 0.06) : x[0] < x[1] ? x : [x[0] - 1, x[0] + 1], y: padded(y, 0.05) };
  }

  // The lines that are named: those with the highest last values.
  leaders() {
    const room = Math.max(1, Math.min(LEADING, Math.floor((this.high - TOP - BOTTOM) / GAP)));
    return new Set([...this.shown()].sort((a, b) => lastOf(b) - lastOf(a)).slice(0, room));
  }

  draw() {
    this.wide = this.frame.clientWidth;
    if (!this.wide) return; // inside a section that is folded
    this.high = clamp(Math.round(this.wide * 0.6), 260, 420);
    this.canvas.replaceChildren();
    furnished(this.canvas, { viewBox: `0 0 ${this.wide} ${this.high}`, width: this.wide, height: this.high });
    this.lead = this.leaders();
    this.names = this.nameWidth();
    const { x, y } = this.ranges();
    this.range = { x, y };
    this.right = this.wide - this.names - 8;
    this.axes();
    const id = `clip${this.number}`;
    const clip = svg("clipPath", { id });
    clip.append(svg("rect", { x: LEFT - 5, y: TOP - 5, width: this.right - LEFT + 10, height: this.high - TOP - BOTTOM + 10 }));
    this.lines = svg("g", { "clip-path": `url(#${id})`, class: "lines" });
    this.canvas.append(clip, this.lines);
    const order = [...this.shown()].sort((a, b) => this.lead.has(a) - this.lead.has(b));
    for (const series of order) this.lines.append(this.line(series));
    this.write();
    this.dot = svg("g", { class: "dot" });
    this.canvas.append(this.dot);
    this.whole.hidden = this.view === null;
    this.mark(this.group.active);
  }

  toX(value) {
    return LEFT + ((value - this.range.x[0]) / (this.range.x[1] - this.range.x[0])) * (this.right - LEFT);
  }

  toY(value) {
    const low = this.high - BOTTOM;
    return low - ((value - this.range.y[0]) / (this.range.y[1] - this.range.y[0])) * (low - TOP);
  }

  fromX(place) {
    return this.range.x[0] + ((place - LEFT) / (this.right - LEFT)) * (this.range.x[1] - this.range.x[0]);
  }

  fromY(place) {
    const low = this.high - BOTTOM;
    return this.range.y[0] + ((low - place) / (low - TOP)) * (this.range.y[1] - this.range.y[0]);
  }

  axes() {
    const low = this.high - BOTTOM, about = this.about;
    const text = (x, y, words, more) => this.canvas.append(svg("text", { x, y, ...more }, words));
    const beside = ticks(this.range.y, 6, false);
    for (const value of beside.values) {
      const y = this.toY(value);
      this.canvas.append(svg("line", { x1: LEFT, x2: this.right, y1: y, y2: y, class: "grid" }));
      text(LEFT - 6, y + 4, written(value, true, beside.step), { "text-anchor": "end" });
    }
    const below = ticks(this.range.x, Math.max(2, (this.right - LEFT) / 70), !about.percent_below);
    for (const value of below.values) {
      const x = this.toX(value);
      this.canvas.append(svg("line", { x1: x, x2: x, y1: TOP, y2: low, class: "grid" }));
      text(x, low + 17, written(value, about.percent_below, below.step), { "text-anchor": "middle" });
    }
    text((LEFT + this.right) / 2, this.high - 5, about.below, { "text-anchor": "middle" });
    text(2, 14, about.title || about.beside, { class: "title" });
  }

  line(series) {
    const colour = colourOf(series), kind = this.lead.has(series) ? "series" : "series rest";
    const made = svg("g", { class: kind });
    made.series = series;
    const point = (values) => (place, i) => `${this.toX(place).toFixed(1)},${this.toY(values[i]).toFixed(1)}`;
    if (series.low.length) {
      const edge = [...series.x.map(point(series.high)), ...series.x.map(point(series.low)).reverse()];
      made.append(svg("path", { d: `M${edge.join("L")}Z`, fill: colour, class: "band" }));
    }
    for (const [x0, y0, x1, y1] of series.bars) {
      const ends = { x1: this.toX(x0), y1: this.toY(y0), x2: this.toX(x1), y2: this.toY(y1) };
      made.append(svg("line", { ...ends, stroke: colour, class: "bar" }));
    }
    const path = { d: `M${series.x.map(point(series.y)).join("L")}`, stroke: colour, class: "line" };
    if (series.x.length > 1) made.append(svg("path", { ...path, ...dashOf(series) }));
    const every = Math.max(1, Math.floor(series.x.length / 12));
    series.x.forEach((place, i) => {
      if (i % every === 0) made.append(mark(series.marker, this.toX(place), this.toY(series.y[i]), colour));
    });
    return made;
  }

  nameWidth() {
    this.cut = new Map();
    const probe = svg("text", {});
    this.canvas.append(probe);
    const limit = this.wide * 0.34 - 30;
    let widest = 0;
    for (const series of this.lead) {
      const end = series.label.endsWith(" ≠") ? " ≠" : ""; // the mark of what is not comparable stays
      let letters = [...series.label.slice(0, series.label.length - end.length)];
      probe.textContent = series.label;
      while (probe.getComputedTextLength() > limit && letters.length > 1) {
        letters = letters.slice(0, -1);
        probe.textContent = `${letters.join("")}…${end}`;
      }
      this.cut.set(series, probe.textContent);
      widest = Math.max(widest, probe.getComputedTextLength());
    }
    probe.remove();
    return Math.ceil(widest) + 34;
  }

  // Names beside the ends of the lines that end inside the view. Those that end close together are moved apart.
  write() {
    const ends = [];
    for (const series of this.lead) {
      const inside = series.x.map((_, i) => i).filter((i) => series.x[i] >= this.range.x[0] && series.x[i] <= this.range.x[1]);
      const last = inside[inside.length - 1];
      if (last === undefined || series.y[last] < this.range.y[0] || series.y[last] > this.range.y[1]) continue;
      ends.push({ series, x: this.toX(series.x[last]), y: this.toY(series.y[last]) });
    }
    const places = spread(ends.map((end) => end.y), GAP, TOP, this.high - BOTTOM);
    ends.forEach(({ series, x, y }, i) => {
      const made = svg("g", { class: "name" });
      made.series = series;
      const thread = this.about.points ? x + 5 : Math.max(x, this.right);
      made.append(svg("line", { x1: thread, y1: y, x2: this.right + 14, y2: places[i], stroke: colourOf(series), class: "thread" }));
      made.append(mark(series.marker, this.right + 19, places[i], colourOf(series)));
      made.append(svg("text", { x: this.right + 27, y: places[i] + 4 }, this.cut.get(series)));
      this.canvas.append(made);
    });
  }

  mark(label) {
    this.canvas.classList.toggle("focused", label !== null);
    for (const made of this.canvas.querySelectorAll(".series, .name")) {
      made.classList.toggle("active", made.series.label === label);
      if (made.series.label === label && made.parentNode === this.lines) this.lines.append(made);
    }
  }

  zoom(view) {
    this.view = view;
    this.hide();
    this.draw();
  }

  // What is nearest to a place: of every line the nearest round, and of these the nearest.
  nearest(x, y) {
    let best = null;
    for (const series of this.shown()) {
      let at = 0;
      series.x.forEach((place, i) => {
        if (Math.abs(this.toX(place) - x) < Math.abs(this.toX(series.x[at]) - x)) at = i;
      });
      const away = Math.hypot(this.toX(series.x[at]) - x, this.toY(series.y[at]) - y);
      if (best === null || away < best.away) best = { series, at, away };
    }
    return best;
  }

  show({ series, at }) {
    const { about, tip } = this;
    this.current = { series, at };
    this.group.activate(series.label);
    const x = this.toX(series.x[at]), y = this.toY(series.y[at]);
    this.dot.replaceChildren(svg("circle", { cx: x, cy: y, r: 5, stroke: colourOf(series) }));
    const lines = [html("b", {}, series.label)];
    const place = about.percent_below ? written(series.x[at], true) : String(series.x[at]);
    lines.push(html("span", {}, `${about.below}${about.percent_below ? ": " : " "}${place}`));
    lines.push(html("span", {}, `${about.points && about.beside ? `${about.beside}: ` : ""}${written(series.y[at], true)}`));
    if (series.low.length && series.low[at] < series.high[at]) {
      lines.push(html("span", { class: "soft" }, `seeds ${written(series.low[at], true)} to ${written(series.high[at], true)}`));
    }
    tip.replaceChildren(...lines);
    tip.hidden = false;
    tip.style.left = `${clamp(x + 14 + tip.offsetWidth > this.wide ? x - 14 - tip.offsetWidth : x + 14, 0, this.wide)}px`;
    tip.style.top = `${clamp(y - tip.offsetHeight - 10, 0, this.high)}px`;
  }

  hide() {
    this.tip.hidden = true;
    this.current = null;
    if (this.dot) this.dot.replaceChildren();
    this.group.activate(null);
  }
}
