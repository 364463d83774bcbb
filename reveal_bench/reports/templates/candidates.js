"use strict";
const { columns, scores, rows, key } = JSON.parse(document.getElementById("data").textContent);
const places = [...document.querySelectorAll(".candidate")];
const rowOf = new Map(rows.map((row) => [row.task_id, row]));

/** A candidate with the edits on the page. */
function current(place) {
  const row = { ...rowOf.get(place.dataset.id) };
  for (const field of place.querySelectorAll("[data-column]")) row[field.dataset.column] = field.value.trim();
  row.total = String(scores.reduce((sum, name) => sum + Number(row[name]), 0));
  return row;
}

const isChosen = (place) => place.querySelector("[type=radio]").checked;
const chosen = () => places.filter(isChosen).map(current);

function counts(of, values) {
  const found = new Map();
  for (const row of of) for (const value of values(row)) found.set(value, (found.get(value) || 0) + 1);
  return [...found].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0], undefined, { numeric: true }));
}

function list(title, pairs) {
  if (!pairs.length) return "";
  const part = document.createElement("section");
  part.append(Object.assign(document.createElement("h2"), { textContent: title }));
  const items = pairs.map(([name, n]) => Object.assign(document.createElement("li"), { textContent: `${name}: ${n}` }));
  part.append(document.createElement("ul"));
  part.lastChild.append(...items);
  return part;
}

function show() {
  const now = chosen();
  const studies = new Set(rows.map((row) => row.study_id)).size;
  document.getElementById("chosen").textContent = `${now.length} of ${studies} studies have a task`;
  for (const place of places) place.querySelector(".total").textContent = `sum ${current(place).total}`;
  const tags = columns.filter((name) => name.startsWith("tag_"));
  document.getElementById("coverage").replaceChildren(
    list("Sum of scores", counts(now, (row) => [row.total])),
    list("Category", counts(now, (row) => [row.category.replaceAll("_", " ")])),
    ...tags.map((name) =>
      list(
        name[4].toUpperCase() + name.slice(5).replaceAll("_", " "),
        counts(now, (row) => (row[name] === "None" ? [] : row[name].split(" - "))),
      ),
    ),
  );
}

function keep() {
  const kept = places.map((place) => [place.dataset.id, isChosen(place), current(place)]);
  try {
    localStorage.setItem(key, JSON.stringify(kept));
  } catch {
    // a browser without storage still saves the file
  }
  show();
}

function restore() {
  let kept = [];
  try {
    kept = JSON.parse(localStorage.getItem(key)) || [];
  } catch {
    // nothing was stored
  }
  const byId = new Map(kept.map(([id, was, row]) => [id, [was, row]]));
  for (const place of places) {
    const [was, row] = byId.get(place.dataset.id) || [false, {}];
    if (was) place.querySelector("[type=radio]").checked = true;
    for (const field of place.querySelectorAll("[data-column]")) field.value = row[field.dataset.column] ?? field.value;
  }
}

const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

function save() {
  const wrong = places.filter(isChosen).flatMap((place) => [...place.querySelectorAll("input:invalid")]);
  if (wrong.length) {
    wrong[0].reportValidity();
    return;
  }
  const lines = [columns, ...chosen().map((row) => columns.map((name) => row[name]))];
  const text = lines.map((cells) => cells.map(quoted).join(",") + "\n").join("");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = "tasks.csv";
  link.click();
  URL.revokeObjectURL(link.href);
}

restore();
show();
document.addEventListener("change", keep);
document.getElementById("save").addEventListener("click", save);
