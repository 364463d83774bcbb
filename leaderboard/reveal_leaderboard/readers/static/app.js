// The reader's list: showing and saving items, and the keyboard shortcuts.

import { Film, unpack } from "./film.js";
import { made } from "./made.js";
import { Panel } from "./panel.js";
import { helpRow, isForField, Tools } from "./tools.js";

const find = (id) => document.getElementById(id);
const state = { items: [], at: -1, isOpen: true, seconds: 0, isBusy: false };
const kept = new Map(); // address -> promise of an image's bytes, for the current item and the next
const tools = new Tools(find("stage"), find("tools"), find("help-keys"));
const panel = new Panel(() => { tell(""); state.sending = undefined; });

class Refused extends Error {}

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await fetch(path, { ...options, redirect: "manual" });
  } catch {
    throw new Refused("The server does not answer. Your answer is still here: try again.");
  }
  if (answer.type === "opaqueredirect") return null;
  if (answer.ok) return answer.json();
  const problem = await answer.json().catch(() => ({}));
  throw new Refused(problem.detail ?? `The server says ${answer.status}.`);
}

async function bytes(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Refused("This image could not be loaded. Load the page again.");
  return answer.arrayBuffer();
}

function fetched(token, number) {
  const path = `/api/items/${token}/films/${number}`;
  if (!kept.has(path)) {
    kept.set(path, bytes(path));
    kept.get(path).catch(() => kept.delete(path));
  }
  return kept.get(path);
}

function tell(text, isBad = false) {
  find("told").textContent = text;
  find("told").classList.toggle("bad", isBad);
}

function notice(title, ...body) {
  find("stage").hidden = find("panel").hidden = find("tools").hidden = true;
  find("notice").hidden = false;
  find("notice-title").textContent = title;
  find("notice-body").replaceChildren(...body);
}

// The reader --------------------------------------------------------------------------------------------------------

async function begin() {
  const who = await ask("/api/who");
  find("title").textContent = who.title;
  document.title = `${who.title} · Readers`;
  if (!who.signed_in) {
    const link = made("a", "Sign in", { href: "/login?next=/", class: "button main" });
    notice("You are not signed in", made("p", "Readers see only their own list."), link);
    link.focus();
    return;
  }
  find("account").hidden = false;
  find("stop").hidden = !who.reader;
  find("sign-out").hidden = who.mode === "local";
  if (who.reader) await openList();
  else if (who.mode === "local") chooseReader(who.readers);
  else notice("You are not a reader of this dataset", made("p", "The maintainers decide which account is which reader. Ask them."));
}

function chooseReader(names) {
  const form = made("form"), label = made("label", "Read as ", { for: "reader" });
  const select = made("select", "", { id: "reader" });
  select.append(...names.map((name) => made("option", name, { value: name })));
  form.append(label, select, made("button", "Begin", { class: "main" }));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    await ask("/api/reader", { reader: select.value });
    await begin();
  });
  notice("Who reads?", made("p", "This server runs on one machine, for a trial: whoever is here may be any reader."), form);
  select.focus();
}

async function openList() {
  const { items, is_open: isOpen } = await ask("/api/list");
  Object.assign(state, { items, isOpen });
  find("stop").hidden = !isOpen;
  progress();
  const first = items.findIndex(({ answer }) => !answer);
  if (!isOpen) closed();
  else if (first < 0) finished();
  else await show(first);
}

function progress() {
  const n = state.items.length, done = state.items.filter(({ answer }) => answer).length;
  const skipped = state.items.filter(({ answer }) => answer === "cannot_read").length;
  find("progress").hidden = false;
  find("done-bar").max = n || 1;
  find("done-bar").value = done;
  find("done-text").textContent = `${done} of ${n} answered${skipped ? `, ${skipped} not readable` : ""}`;
}

function finished() {
  state.at = state.items.length;
  const left = state.items.findIndex(({ answer }) => !answer);
  const back = made("button", "Back to the last one", { type: "button" });
  back.addEventListener("click", () => show(state.items.length - 1));
  const on = made("button", left < 0 ? "Close my list" : "To the first without an answer", { type: "button", class: "main" });
  on.addEventListener("click", () => (left < 0 ? askToStop() : show(left)));
  const buttons = made("p", "", { class: "buttons" });
  buttons.append(back, on);
  const n = state.items.filter(({ answer }) => !answer).length;
  const words = left < 0
    ? `All ${state.items.length} are answered. Thank you. You may go back and change answers until the list is closed.`
    : `${n} of ${state.items.length} are without an answer yet.`;
  notice(left < 0 ? "You are done" : "The end of your list", made("p", words), buttons);
  on.focus();
}

function closed() {
  notice("Your list is closed", made("p", "Your answers are kept. Thank you for reading. If you meant to go on, ask the maintainers."));
}

// One item ---------------------------------------------------------------------------------------------------------

async function show(index) {
  if (index < 0) return;
  if (index >= state.items.length) {
    finished();
    return;
  }
  const { token } = state.items[index];
  state.isBusy = true;
  const item = await ask(`/api/items/${token}`).finally(() => { state.isBusy = false; });
  Object.assign(state, { at: index, item, sending: undefined, seconds: 0 });
  find("notice").hidden = true;
  find("stage").hidden = find("panel").hidden = find("tools").hidden = false;
  find("place").textContent = `${index + 1} of ${state.items.length}${item.own ? " · answered" : ""}`;
  panel.show(item.panel, item.own);
  helpAnswers(item.panel);
  tell("");
  forget(item);
  await hang(item);
  ahead(index + 1);
}

async function hang(item) {
  tools.close("Loading the images");
  const images = await Promise.all(item.films.map(async (facts, number) => {
    if (facts.fault) return made("p", facts.fault, { class: "waiting bad" });
    const view = { UNKNOWN: "View not known", LATERAL: "Lateral" }[facts.view] ?? facts.view;
    return {
      film: new Film(facts, unpack(await fetched(item.token, number), facts.width, facts.height)),
      title: item.films.length > 1 ? `${view}, ${number + 1} of ${item.films.length}` : view,
      overlays: item.panel.overlays.filter(({ film }) => (film ?? 0) === number),
    };
  }));
  if (state.item !== item) return; // the reader has moved on to another item
  tools.buttons.marks.hidden = !item.panel.overlays.length;
  tools.hang(images.filter(({ film }) => film), images.filter(({ film }) => !film));
}

/** Fetch the images of the next item in advance, and drop those of earlier items. */
async function ahead(index) {
  const next = state.items[index];
  if (!next) return;
  const item = await ask(`/api/items/${next.token}`).catch(() => null);
  item?.films.forEach((facts, number) => { if (!facts.fault) fetched(next.token, number).catch(() => {}); });
}

function forget(item) {
  for (const path of kept.keys()) if (!path.startsWith(`/api/items/${item.token}/`)) kept.delete(path);
}

function helpAnswers(asked) {
  const rows = asked.choices.map(({ key, label }) => [`\`${key.toUpperCase()}\``, label]);
  if (asked.scales) rows.unshift(["`1` to `5`", "Score; next criterion"], ["`J` `K`", "Next, previous criterion"]);
  find("help-answers").replaceChildren(...rows.map(([keys, text]) => helpRow(keys, text)));
}

// Saving -----------------------------------------------------------------------------------------------------------

function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Save and continue. The key is new only for a changed answer, so that an answer sent twice is stored once. */
async function save() {
  const given = panel.read();
  if (given === null) {
    tell(panel.lacks, true);
    return;
  }
  if (state.isBusy) return;
  state.isBusy = true;
  state.sending ??= { key: newKey(), seconds: state.seconds };
  find("save").setAttribute("aria-disabled", "true");
  try {
    const { answer } = await ask(`/api/items/${state.item.token}/answers`, { ...given, ...state.sending });
    state.items[state.at].answer = answer;
    panel.isDirty = false;
    progress();
  } catch (error) {
    tell(error.message, true);
    return;
  } finally {
    state.isBusy = false;
    find("save").removeAttribute("aria-disabled");
  }
  document.activeElement?.blur();
  await show(state.at + 1);
}

async function go(step) {
  if (state.isBusy) return;
  if (panel.isDirty && state.at < state.items.length && step > 0 && panel.answer) await save();
  else if (panel.isDirty && state.at < state.items.length) {
    if (panel.answer && !state.wasWarned) {
      state.wasWarned = true;
      tell("This answer is not saved. Press Enter to save it, or once more to leave it.", true);
      return;
    }
    await show(state.at + step);
  } else await show(Math.max(0, state.at + step));
  state.wasWarned = false;
}

function askToStop() {
  const left = state.items.filter(({ answer }) => !answer).length;
  find("stop-text").textContent = left
    ? `The ${left} that you have not answered go to other readers. Your answers are kept and cannot be changed any more.`
    : "All are answered. Your list is closed, and answers cannot be changed any more.";
  find("stopping").returnValue = "no";
  find("stopping").showModal();
}

// Keys and buttons -------------------------------------------------------------------------------------------------

const acts = {
  help: () => find("help").showModal(),
  stop: askToStop,
  save: () => save(),
  next: () => go(1),
  back: () => go(-1),
  comment: () => { if (!find("more").hidden) panel.comment.focus(); },
  ticks: () => panel.openTicks(),
};
const keys = { h: "help", "?": "help", n: "next", b: "back", c: "comment", t: "ticks" };

async function act(name) {
  try {
    await acts[name]();
  } catch (error) {
    tell(error.message, true);
    if (!(error instanceof Refused)) throw error;
  }
}

function scroll(share) { find("scroll").scrollBy({ top: share * find("scroll").clientHeight }); }

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (button) act(button.dataset.do);
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const { target, key } = event, isField = isForField(event);
  if (isField && key === "Escape") target.blur();
  if (find("panel").hidden && key.toLowerCase() !== "b" && key.toLowerCase() !== "h") return;
  if (isField && !(key === "Enter" && target === panel.comment && !event.shiftKey)) return;
  if (target.matches("input") && (key === " " || (key.startsWith("Arrow") && target.type === "radio"))) return;
  if (key === "Enter" && target.matches("button, a, summary")) return;
  if (event.repeat && !/^(Arrow|[wl+=-]$)/i.test(key)) return;
  if (handle(key, event.shiftKey)) event.preventDefault();
});

function handle(key, isShifted) {
  const name = key.toLowerCase();
  if (key === "Enter") act("save");
  else if (state.at < 0) return false;
  else if (!find("panel").hidden && panel.key(name)) return true;
  else if (key === "PageDown" || key === "PageUp") scroll(key === "PageDown" ? 0.8 : -0.8);
  else if (keys[name]) act(keys[name]);
  else return tools.key(key, isShifted);
  return true;
}

find("stopping").addEventListener("close", async () => {
  if (find("stopping").returnValue !== "yes") return;
  try {
    await ask("/api/stop", {});
    panel.isDirty = false;
    await openList();
  } catch (error) {
    notice("Not done", made("p", `${error.message} Load the page again.`));
  }
});

window.addEventListener("beforeunload", (event) => { if (panel.isDirty && panel.answer) event.preventDefault(); });
setInterval(() => { if (!document.hidden && !find("panel").hidden) state.seconds += 1; }, 1000);
begin().catch((error) => {
  notice("This page cannot go on", made("p", error instanceof Refused ? error.message : "Load the page again."));
  if (!(error instanceof Refused)) throw error;
});
