// Tables with more than two rows are sorted by a click on a heading, or by Enter and Space with the keyboard.
// Numbers are compared as numbers: the first number in a cell counts, and cells without one come last.
"use strict";

const MINUS = /[−–](?=\d)/g;

function key(cell) {
  const text = cell ? cell.textContent.trim() : "";
  const found = text.replace(MINUS, "-").replace(/(\d),(?=\d{3})/g, "$1").match(/^[<≥~+]?\s*([+-]?\d+(\.\d+)?)/);
  return { text, number: found ? Number(found[1]) : null };
}

function compare(one, other, numeric) {
  if (!numeric) return one.text.localeCompare(other.text);
  if (one.number === null || other.number === null) return (one.number === null) - (other.number === null);
  return one.number - other.number;
}

function sort(table, column, heading) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows, (row) => ({ row, key: key(row.cells[column]) }));
  const numeric = rows.filter((one) => one.key.number !== null).length * 2 > rows.length;
  const before = heading.getAttribute("aria-sort");
  const down = before ? before === "ascending" : numeric;
  rows.sort((a, b) => {
    const order = compare(a.key, b.key, numeric);
    const known = !numeric || (a.key.number !== null && b.key.number !== null);
    return down && known ? -order : order;
  });
  for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  body.append(...rows.map((one) => one.row));
}

function prepare(table) {
  if (!table.tHead || !table.tBodies[0] || table.tBodies[0].rows.length < 3) return;
  table.dataset.sortable = "";
  Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
    heading.tabIndex = 0;
    heading.title = "Sort by this column";
    heading.addEventListener("click", () => sort(table, column, heading));
    heading.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      sort(table, column, heading);
    });
  });
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".md-content table:not([class])").forEach(prepare);
});
