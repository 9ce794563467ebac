const FEW = 6, BEST = 4; // of more lines than FEW, the BEST of each chart and the baseline are shown at first

// Charts that stand side by side share which lines are shown, which one is looked at, and one list of names.
const groups = new Map();

const bestFirst = (chart) => [...chart.about.series].sort((a, b) => lastOf(b) - lastOf(a));

class Group {
  constructor(place) {
    this.place = place;
    this.charts = [];
    this.hidden = new Set();
    this.active = null;
    this.buttons = new Map();
  }

  activate(label) {
    if (label === this.active) return;
    this.active = label;
    for (const chart of this.charts) if (chart.lines) chart.mark(label);
    for (const [name, one] of this.buttons) one.classList.toggle("active", name === label);
  }

  // Shows these lines and hides all others.
  only(shown) {
    this.choose(shown);
    for (const chart of this.charts) chart.draw();
    remember();
  }

  choose(shown) {
    for (const [name, one] of this.buttons) {
      const seen = shown.has(name);
      one.setAttribute("aria-pressed", String(seen));
      if (seen) this.hidden.delete(name);
      else this.hidden.add(name);
    }
  }

  toggle(name) {
    const shown = new Set([...this.buttons.keys()].filter((one) => !this.hidden.has(one)));
    if (!shown.delete(name)) shown.add(name);
    this.only(shown);
  }

  // The lines of each chart, the best of the first chart first.
  series() {
    const found = new Map();
    for (const one of this.charts.flatMap(bestFirst)) if (!found.has(one.label)) found.set(one.label, one);
    return [...found.values()];
  }

  legend() {
    const series = this.series();
    if (series.length < 2) return;
    const list = html("div", { class: "legend", role: "group", "aria-label": "Lines to show" });
    for (const one of series) {
      const made = button(undefined, () => this.toggle(one.label), { "aria-pressed": "true" });
      const key = svg("svg", { width: 26, height: 12, viewBox: "0 0 26 12", "aria-hidden": "true" });
      const line = { d: "M1,6H25", stroke: colourOf(one), class: "line", ...dashOf(one) };
      key.append(svg("path", line), mark(one.marker, 13, 6, colourOf(one)));
      made.append(key, html("span", {}, one.label));
      for (const event of ["pointerenter", "focus"]) made.addEventListener(event, () => this.activate(one.label));
      for (const event of ["pointerleave", "blur"]) made.addEventListener(event, () => this.activate(null));
      this.buttons.set(one.label, made);
      list.append(made);
    }
    const all = () => this.only(new Set(this.buttons.keys()));
    const foot = html("div", { class: "choose" });
    foot.append(button("Show all", all), button("Hide all", () => this.only(new Set())));
    this.place.append(list, foot);
    if (series.length <= FEW) return;
    const best = this.charts.flatMap((chart) => bestFirst(chart).slice(0, BEST));
    const baseline = series.filter((one) => /^fedavg\b/i.test(one.label));
    this.choose(new Set([...best, ...baseline].map((one) => one.label)));
    const others = baseline.length ? ` and ${baseline[0].label}` : "";
    foot.append(html("span", { class: "soft" }, `The best ${BEST} of each chart${others} are shown at first; press a name for others.`));
  }
}

function drawCharts() {
  let number = 0;
  for (const data of document.querySelectorAll("figure > script[type='application/json']")) {
    const figure = data.parentNode, place = figure.closest(".figures") || figure;
    if (!groups.has(place)) groups.set(place, new Group(place));
    const group = groups.get(place), row = html("div", { class: "charts" });
    for (const about of JSON.parse(data.textContent)) {
      const chart = new Chart(about, group);
      chart.number = number;
      number += 1;
      group.charts.push(chart);
      row.append(chart.frame);
    }
    figure.classList.add("drawn");
    figure.prepend(row);
  }
  for (const group of groups.values()) {
    group.legend();
    for (const chart of group.charts) follow(chart);
  }
}

// Draws a chart whenever its width changes, also when its section is unfolded.
function follow(chart) {
  let wide = 0;
  new ResizeObserver(() => requestAnimationFrame(() => {
    if (chart.frame.clientWidth === wide) return;
    wide = chart.frame.clientWidth;
    chart.draw();
  })).observe(chart.frame);
}
