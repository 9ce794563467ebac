// Every section of the page can be folded. Long tables and long lists of runs are folded at first.
const LONG = 20; // rows of a table, or runs in a list

function folded(title, content, open) {
  const made = html("details", { class: "part" }), top = html("summary");
  made.open = open;
  title.before(made);
  top.append(title);
  const inside = html("div", { class: "inside" });
  inside.append(...content);
  made.append(top, inside);
  return made;
}

function untilNext(title, stop) {
  const found = [];
  for (let one = title.nextElementSibling; one && !one.matches(stop); one = one.nextElementSibling) found.push(one);
  return found;
}

const folds = [];

function foldSections() {
  for (const title of document.querySelectorAll("main > h2")) {
    const content = untilNext(title, "h2");
    const runs = content.filter((one) => one.matches("details"));
    const few = runs.length < content.length || runs.length <= LONG;
    if (content.length) folds.push(folded(title, content, few));
  }
  for (const title of document.querySelectorAll(".inside > h3")) {
    const beside = title.nextElementSibling, table = beside && beside.querySelector(":scope > table");
    if (!beside || !beside.matches(".scroll") || !table || table.tBodies[0].rows.length <= LONG) continue;
    title.append(html("span", { class: "soft" }, ` (${table.tBodies[0].rows.length} rows)`));
    folds.push(folded(title, [beside], false));
  }
  if (folds.length > 1) addFoldButtons();
  window.addEventListener("beforeprint", () => foldAll(true));
}

function foldAll(open) {
  for (const one of folds) one.open = open;
}

function addFoldButtons() {
  const bar = html("div", { class: "bar" });
  bar.append(button("Fold all", () => foldAll(false)), button("Unfold all", () => foldAll(true)));
  document.querySelector("main").prepend(bar);
}
