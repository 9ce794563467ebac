// The marks of matplotlib that analysis/figures/theme.py uses, as paths around 0.
function corners(count, turn, radii) {
  const points = [];
  for (let i = 0; i < count; i += 1) {
    const angle = (Math.PI * (2 * i)) / count + turn - Math.PI / 2;
    const radius = radii[i % radii.length];
    points.push(`${(radius * Math.cos(angle)).toFixed(2)},${(radius * Math.sin(angle)).toFixed(2)}`);
  }
  return `M${points.join("L")}Z`;
}

const CROSS = "M-1.2,-3.6H1.2V-1.2H3.6V1.2H1.2V3.6H-1.2V1.2H-3.6V-1.2H-1.2Z";
const MARKS = {
  o: "M-3.2,0A3.2,3.2 0 1 1 3.2,0A3.2,3.2 0 1 1 -3.2,0Z",
  s: corners(4, Math.PI / 4, [4.1]),
  D: corners(4, 0, [4.1]),
  "^": corners(3, 0, [4.3]),
  v: corners(3, Math.PI, [4.3]),
  "<": corners(3, -Math.PI / 2, [4.3]),
  ">": corners(3, Math.PI / 2, [4.3]),
  P: CROSS,
  X: CROSS,
  "*": corners(10, 0, [4.6, 2]),
  p: corners(5, 0, [4]),
  h: corners(6, 0, [3.9]),
};

function mark(kind, x, y, colour) {
  const turn = kind === "X" ? " rotate(45)" : "";
  return svg("path", {
    d: MARKS[kind] || MARKS.o, fill: colour, transform: `translate(${x.toFixed(2)} ${y.toFixed(2)})${turn}`,
  });
}

const colourOf = (series) => `var(--c${series.colour})`;
const dashOf = (series) => (series.dashed ? { "stroke-dasharray": "5 3" } : {});
