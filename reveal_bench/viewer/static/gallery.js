// The cases of a gallery: the visible ones, the page's address, and the keys.
// The address has the whole state: ?benchmark=NAME&group=FINDING&show=FILTER&case=ID.

import { CaseView } from "./case.js";
import { isBlank } from "./film.js";
import { made } from "./made.js";
import { isForField } from "./tools.js";

const find = (id) => document.getElementById(id);
const state = { at: null, shown: [] };
const view = new CaseView();

class Lost extends Error {}

async function read(path) {
  const answer = await fetch(path).catch(() => { throw new Lost("The server does not answer. Load the page again."); });
  if (!answer.ok) throw new Lost(answer.status === 404 ? "There is nothing at this address." : "Load the page again.");
  return answer.json();
}

// What is shown ----------------------------------------------------------------------------------------------------

/** Results of a case for one finding or all: a string per finding, with a character per system. */
function results({ results: all }) {
  const group = state.index.groups.indexOf(state.group);
  return all.filter(([number]) => group < 0 || number === group).map(([, found]) => found);
}

function filters() {
  const { systems, outcomes } = state.index;
  const any = [["", "All cases", () => true]];
  if (!outcomes || !systems.length) return any;
  const [right, wrong] = outcomes, some = (test) => (found) => found.some(test);
  any.push(["none", `All systems ${wrong}`, some((one) => /^[-.]*-[-.]*$/.test(one))]);
  any.push(["differ", "Systems disagree", some((one) => one.includes("+") && one.includes("-"))]);
  any.push(["all", `All systems ${right}`, (found) => {
    const judged = found.filter((one) => /[+-]/.test(one));
    return judged.length > 0 && judged.every((one) => /^[+]+$/.test(one));
  }]);
  systems.forEach((name, n) => any.push([`wrong-${n + 1}`, `${name}: ${wrong}`, some((one) => one[n] === "-")]));
  return any;
}

function chosen() {
  const [, , passes] = state.filters.find(([name]) => name === state.show);
  return state.index.cases.map((one, number) => ({ ...one, number })).filter((one) => {
    const found = results(one);
    return (found.length || !state.group) && passes(found);
  });
}

function address({ id } = {}) {
  const words = { benchmark: state.name, group: state.group, show: state.show, case: id };
  return `?${new URLSearchParams(Object.entries(words).filter(([, value]) => value))}`;
}

function follow() {
  const asked = new URLSearchParams(location.search);
  state.group = state.index.groups.includes(asked.get("group")) ? asked.get("group") : "";
  state.show = state.filters.some(([name]) => name === asked.get("show")) ? asked.get("show") : "";
  find("group").value = state.group;
  find("show").value = state.show;
  state.shown = chosen();
  const id = asked.get("case");
  const wanted = id && state.index.cases.map((one, number) => ({ ...one, number })).find((one) => one.id === id);
  if (wanted) open(wanted);
  else {
    overview();
    if (id) find("count").textContent = `Case ${id} is not here. ${find("count").textContent}`;
  }
}

function go(place) {
  history.pushState(null, "", address(place));
  follow();
}

// All cases --------------------------------------------------------------------------------------------------------

function overview() {
  const last = state.at;
  view.close();
  state.at = null;
  find("case").hidden = true;
  find("overview").hidden = false;
  document.body.classList.remove("reading");
  const n = state.index.cases.length;
  find("count").textContent = state.shown.length === n ? `${n} cases` : `${state.shown.length} of ${n} cases`;
  if (state.drawn !== address()) find("cards").replaceChildren(...state.shown.map(card));
  state.drawn = address();
  document.title = `Cases · ${state.name}`;
  if (last) find("cards").querySelector(`[data-number="${last.number}"]`)?.focus();
}

function card(one) {
  const item = made("li"), link = made("a", "", { href: address(one), "data-number": one.number });
  const picture = made("img", "", {
    src: `/gallery/${encodeURIComponent(state.name)}/thumbnails/${one.number}.jpg`,
    alt: `${one.view} radiograph`, loading: "lazy", decoding: "async", width: 240, height: 240,
  });
  link.append(picture, ...one.results.map(([number, found]) => summary(state.index.groups[number], found)));
  if (!one.results.length) link.append(made("span", "Nothing to find", { class: "result soft" }));
  picture.addEventListener("load", () => {
    if (isBlank(greyLevels(picture))) picture.after(made("strong", "This image shows nothing", { class: "result" }));
  }, { once: true });
  item.append(link);
  return item;
}

/** Number of pixels at each grey level. */
function greyLevels(picture) {
  const [width, height] = [picture.naturalWidth, picture.naturalHeight], levels = new Float64Array(256);
  const context = Object.assign(made("canvas"), { width, height }).getContext("2d");
  context.drawImage(picture, 0, 0);
  context.getImageData(0, 0, width, height).data.forEach((value, i) => { if (i % 4 === 0) levels[value] += 1; });
  return levels;
}

/** Such as "Edema 3/5": how many systems are right. */
function summary(group, found) {
  const line = made("span", "", { class: "result" }), judged = [...found].filter((one) => one !== ".");
  line.append(made("strong", group.replace("mediastinum", "\u00admediastinum")), " ");
  if (state.index.outcomes && judged.length) {
    const right = judged.filter((one) => one === "+").length;
    const words = `${right}/${found.length}`;
    line.append(made("span", words, { class: right ? "soft" : "none" }));
  }
  return line;
}

// One case ---------------------------------------------------------------------------------------------------------

async function open(one) {
  state.at = one;
  find("overview").hidden = true;
  find("case").hidden = false;
  document.body.classList.add("reading");
  find("back").setAttribute("href", address());
  const place = state.shown.findIndex(({ id }) => id === one.id);
  find("place").textContent = place < 0 ? "" : `${place + 1} of ${state.shown.length}`;
  for (const [name, step] of [["previous", -1], ["next", 1]]) {
    const next = neighbour(step);
    document.querySelector(`[data-do="${name}"]`).disabled = !next;
  }
  find("case-title").textContent = one.id;
  document.title = `${one.id} · ${state.name}`;
  const base = `/gallery/${encodeURIComponent(state.name)}`;
  try {
    const document_ = await read(`${base}/cases/${one.number}.json`);
    if (state.at === one) await view.show(document_, state.index, { base, group: state.group || matching(one) });
  } catch (error) {
    notice(error);
  }
}

/** The first finding of a case for which the case passes the filter. */
function matching({ results: all }) {
  const [name, , passes] = state.filters.find(([name]) => name === state.show);
  return name && state.index.groups[all.find(([, found]) => passes([found]))?.[0]];
}

function neighbour(step) {
  const place = state.shown.findIndex(({ id }) => id === state.at?.id);
  return place < 0 ? state.shown[0] : state.shown[place + step];
}

// Keys and buttons -------------------------------------------------------------------------------------------------

const acts = {
  next: () => { if (neighbour(1)) go(neighbour(1)); },
  previous: () => { if (neighbour(-1)) go(neighbour(-1)); },
  help: () => find("help").showModal(),
};
const keys = { n: "next", b: "previous", h: "help", "?": "help" };

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]"), link = event.target.closest("a[href^='?']");
  if (button) acts[button.dataset.do]();
  else if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    history.pushState(null, "", link.getAttribute("href"));
    follow();
    if (state.at) find("case-title").focus({ preventScroll: true });
    window.scrollTo(0, state.at ? 0 : window.scrollY);
  }
});

document.addEventListener("keydown", (event) => {
  const { key } = event;
  if (!state.at || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (isForField(event)) return;
  if (event.repeat && !/^(Arrow|[wl+=-]$)/i.test(key)) return;
  const name = keys[key.toLowerCase()];
  if (key === "Escape") go();
  else if (name) acts[name]();
  else if (!view.key(key, event.shiftKey, event.code)) return;
  event.preventDefault();
});

for (const id of ["group", "show"]) {
  find(id).addEventListener("change", () => {
    state[id] = find(id).value;
    history.replaceState(null, "", address());
    follow();
  });
}
find("filters").addEventListener("submit", (event) => event.preventDefault());
find("benchmark").addEventListener("change", () => { location.search = `?benchmark=${encodeURIComponent(find("benchmark").value)}`; });
window.addEventListener("popstate", () => { if (state.index) follow(); });

// Beginning --------------------------------------------------------------------------------------------------------

function notice(error) {
  find("overview").hidden = find("case").hidden = true;
  find("notice").hidden = false;
  find("notice").textContent = error instanceof Lost ? error.message : "This page cannot go on. Load it again.";
  if (!(error instanceof Lost)) throw error;
}

function options(id, pairs) {
  find(id).replaceChildren(...pairs.map(([value, label]) => made("option", label, { value })));
}

async function begin() {
  const { menu, galleries } = await read("/gallery/list.json");
  const asked = new URLSearchParams(location.search).get("benchmark");
  state.name = asked ?? galleries[0];
  find("menu").hidden = !menu.length;
  find("menu").replaceChildren(...menu.map(([name, address]) => made("a", name, {
    href: address === "/" ? `/?${new URLSearchParams({ benchmark: state.name })}` : address,
    ...(address === location.pathname && { "aria-current": "page" }),
  })));
  options("benchmark", galleries.map((name) => [name, name]));
  find("benchmark").value = state.name;
  find("benchmarks").hidden = galleries.length < 2;
  if (!galleries.includes(state.name)) throw new Lost(`No cases of ${state.name} are here.`);
  state.index = await read(`/gallery/${encodeURIComponent(state.name)}/gallery.json`);
  const { benchmark, version, split, synthetic, groups } = state.index;
  find("title").textContent = `Cases of ${benchmark}`;
  find("about").textContent = `version ${version}, ${split}${synthetic ? ", synthetic data" : ""}`;
  const { outcomes, systems } = state.index;
  find("legend").textContent = outcomes && systems.length
    ? `Beside each finding: how many of the ${systems.length} systems are judged “${outcomes[0]}” there.` : "";
  state.filters = filters();
  options("group", [["", "All findings"], ...groups.map((name) => [name, name])]);
  options("show", state.filters);
  find("notice").hidden = true;
  follow();
}

begin().catch(notice);
