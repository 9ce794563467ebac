// Begins everything. While the page is watched, it loads itself again and keeps what was folded, sorted and hidden.
const every = Number(document.documentElement.dataset.reload || 0);
const memory = `raffed ${location.pathname}`;
let used = 0; // when a key or the pointer was last used

function remember() {
  if (!every) return;
  const state = {
    folds: folds.map((one) => one.open),
    orders: sortable.map((table) => table.order || null),
    hidden: [...groups.values()].map((group) => [...group.hidden]),
  };
  try {
    sessionStorage.setItem(memory, JSON.stringify(state));
  } catch {
    // A browser may refuse to store anything for a file. The page then begins anew each time.
  }
}

function recall() {
  let state = null;
  try {
    state = JSON.parse(sessionStorage.getItem(memory));
  } catch {
    return;
  }
  if (!state) return;
  if (state.folds.length === folds.length) folds.forEach((one, i) => { one.open = state.folds[i]; });
  sortable.forEach((table, i) => {
    const kept = state.orders[i];
    if (kept && kept.column < table.tHead.rows[0].cells.length) sortBy(table, kept.column, kept.order);
  });
  [...groups.values()].forEach((group, i) => {
    const hidden = new Set(state.hidden[i] || []);
    if (hidden.size) group.only(new Set([...group.buttons.keys()].filter((name) => !hidden.has(name))));
  });
}

function loadAgain() {
  const busy = document.querySelector(".tip:not([hidden])") || Date.now() - used < 1000;
  if (busy) setTimeout(loadAgain, 500);
  else location.reload();
}

foldSections();
sortTables();
sayWhatScrolls();
drawCharts();
if (every) {
  recall();
  for (const event of ["pointerdown", "keydown", "wheel"]) {
    addEventListener(event, () => { used = Date.now(); }, { passive: true });
  }
  addEventListener("pagehide", remember);
  setTimeout(loadAgain, 1000 * every);
}
document.documentElement.dataset.ready = "";
