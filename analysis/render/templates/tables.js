// A press on a title sorts a table: up or down, then the other way, then as it was.
const NUMBER = /^[<>≥≤]?\s*([+-]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[+-]?\d+)?)/i;

function numberIn(text) {
  const found = NUMBER.exec(text.replace(/^−/, "-"));
  return found ? Number(found[1].replaceAll(",", "")) : NaN;
}

const cellText = (row, column) => row.cells[column].textContent.trim();

function isPlain(table) {
  const rows = [...(table.tHead ? table.tHead.rows : []), ...[...table.tBodies].flatMap((body) => [...body.rows])];
  const cells = rows.flatMap((row) => [...row.cells]);
  const one = table.tHead && table.tHead.rows.length === 1 && table.tBodies.length === 1;
  const even = rows.every((row) => row.cells.length === rows[0].cells.length);
  return one && even && table.tBodies[0].rows.length > 1 && cells.every((cell) => cell.colSpan === 1 && cell.rowSpan === 1);
}

function compared(column, numeric, way) {
  const words = new Intl.Collator(undefined, { numeric: true });
  return (a, b) => {
    const [one, other] = [a, b].map((row) => cellText(row, column));
    if (!numeric) return way * words.compare(one, other);
    const [x, y] = [one, other].map(numberIn);
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y); // what is not measured stays last
    return way * (x - y);
  };
}

function sortBy(table, column, order) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const numeric = [...table.original].some((row) => !Number.isNaN(numberIn(cellText(row, column))));
  heads.forEach((head, i) => head.setAttribute("aria-sort", i === column ? order : "none"));
  const rows = [...table.original];
  if (order !== "none") rows.sort(compared(column, numeric, order === "ascending" ? 1 : -1));
  body.append(...rows);
  table.order = { column, order };
}

function makeSortable(table) {
  table.original = [...table.tBodies[0].rows];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (!head.textContent.trim()) return;
    const made = html("button", { type: "button", class: "sort" });
    made.append(...head.childNodes);
    head.append(made);
    head.setAttribute("aria-sort", "none");
    made.addEventListener("click", () => {
      const numbers = table.original.some((row) => !Number.isNaN(numberIn(cellText(row, column))));
      const cycle = numbers ? ["none", "descending", "ascending"] : ["none", "ascending", "descending"];
      sortBy(table, column, cycle[(cycle.indexOf(head.getAttribute("aria-sort")) + 1) % 3]);
      remember();
    });
  });
}

const sortable = [];

function sortTables() {
  for (const table of document.querySelectorAll("table.summary")) {
    if (!isPlain(table)) continue;
    makeSortable(table);
    sortable.push(table);
  }
}

// Says of a table or picture that is wider than its place that it goes on.
function sayWhatScrolls() {
  for (const place of document.querySelectorAll(".scroll, figure.classes")) {
    const what = place.matches("figure") ? "picture" : "table";
    const told = html("p", { class: "more", hidden: "" }, `This ${what} goes on to the right: scroll it →`);
    place.before(told);
    new ResizeObserver(() => {
      told.hidden = place.scrollWidth <= place.clientWidth + 1;
      place.classList.toggle("wider", !told.hidden);
    }).observe(place);
  }
}
