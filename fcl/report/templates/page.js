"use strict";
// Sortable tables: rows come from JSON, and every text is set as text, never as HTML.
const FIRST_ROWS = 20;

function element(name, text, parent) {
  const made = document.createElement(name);
  if (text !== null) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

function shown(value) {
  if (value === null) return "";
  if (typeof value === "string") return value;
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1e3 && size < 1e15) return Math.round(value).toLocaleString("en");
  return size < 1e-4 || size >= 1e15 ? value.toExponential(1) : Number(value.toPrecision(4)).toString();
}

function compare(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a === "string") return a < b ? 1 : a > b ? -1 : 0;
  return Math.abs(b) - Math.abs(a) || b - a;
}

function sortable(figure) {
  const { head, rows } = JSON.parse(document.getElementById(figure.dataset.island).textContent);
  const folded = head.length - 1;
  if (!rows.some((r) => r[folded])) [head, ...rows].forEach((r) => r.pop());
  const filter = element("input", null, figure);
  filter.type = "search";
  filter.placeholder = "filter features";
  filter.setAttribute("aria-label", "filter features");
  const table = element("table", null, element("div", null, figure));
  table.parentNode.className = "wide";
  const headings = element("tr", null, element("thead", null, table));
  const body = element("tbody", null, table);
  const more = element("button", "", figure);
  let column = 0, descending = true, all = false;

  function row(values) {
    const line = element("tr", null, body);
    values.forEach((value, i) => {
      const cell = element("td", i === folded ? null : shown(value), line);
      cell.className = typeof value === "number" ? "number" : String(value).length > 14 ? "text" : "word";
      if (i === folded && value) {
        const colon = value.indexOf(": "); // 2 equal: names
        const details = element("details", null, cell);
        element("summary", value.slice(0, colon), details);
        element("div", value.slice(colon + 2), details);
      }
    });
  }

  function draw() {
    const wanted = filter.value.toLowerCase();
    const found = rows.filter((r) => r.some((v) => typeof v === "string" && v.toLowerCase().includes(wanted)));
    found.sort((a, b) => (descending ? 1 : -1) * compare(a[column], b[column]));
    body.replaceChildren();
    found.slice(0, all ? found.length : FIRST_ROWS).forEach(row);
    more.hidden = all || found.length <= FIRST_ROWS;
    more.textContent = "show all " + found.length.toLocaleString("en") + " lines";
    [...headings.children].forEach((h, i) => {
      if (i === column) h.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else h.removeAttribute("aria-sort");
    });
  }

  head.forEach((name, i) => {
    const heading = element("th", name, headings);
    if (rows.some((r) => typeof r[i] === "number")) heading.className = "number";
    heading.addEventListener("click", () => {
      // the first click shows the largest numbers, and the texts that begin with A
      descending = i === column ? !descending : rows.some((r) => typeof r[i] === "number");
      column = i;
      draw();
    });
  });
  filter.addEventListener("input", draw);
  more.addEventListener("click", () => { all = true; draw(); });
  draw();
}

document.querySelectorAll("figure.sortable").forEach(sortable);
window.addEventListener("beforeprint", () => {
  document.querySelectorAll("section > details").forEach((details) => { details.open = true; });
});
