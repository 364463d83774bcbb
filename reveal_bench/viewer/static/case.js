// One case: its images with marks drawn on them, and the answer of every system.

import { filmOfPicture } from "./film.js";
import { made } from "./made.js";
import { Tools } from "./tools.js";
import { drawnMask } from "./viewer.js";

const find = (id) => document.getElementById(id);
// Okabe and Ito's colours, distinct for colour-blind readers, of those visible on a dark image; green is the reference.
const REFERENCE = "#2fd6a3", READERS = ["#ffffff", "#c9c9c9", "#ffd3e6", "#cfe3ff", "#ffe9b8"];
const COLOURS = ["#e69f00", "#56b4e9", "#f0e442", "#cc79a7", "#ff7f2a", "#8fb8ff"];
const SIGNS = { "+": "✓", "-": "✗", ".": "·" };
const VIEWS = { UNKNOWN: "View not known", LATERAL: "Lateral", FRONTAL: "Frontal" };

export class CaseView {
  constructor() {
    this.tools = new Tools(find("stage"), find("tools"), find("help-keys"));
    this.off = new Set(); // whose marks are switched off; it stays so from case to case
  }

  close() {
    this.tools.close();
    this.shown = null;
  }

  /** Draw a case; `group` is the finding shown first, "" for the first one asked. */
  async show(shown, { systems, groups }, { base, group }) {
    this.tools.close("Loading the images");
    this.shown = shown;
    const answered = Object.values(shown.answers).flat().map((one) => one.group);
    const drawn = Object.values(shown.marks).flat().map((one) => one.group);
    const there = new Set([...shown.groups, ...answered, ...drawn]);
    this.groups = groups.filter((name) => there.has(name));
    this.group = this.groups.includes(group) ? group : shown.groups[0] ?? this.groups[0] ?? "";
    const readers = Object.keys(shown.marks).filter((name) => name !== "Reference");
    this.people = [
      ...(shown.marks.Reference ? [{ name: "Reference", key: "0", colour: REFERENCE }] : []),
      ...readers.map((name, n) => ({
        name, key: n < 9 ? `⇧${n + 1}` : "", colour: READERS[(n + 1) % READERS.length],
      })),
      ...systems.map((name, n) => ({
        name, key: n < 9 ? String(n + 1) : "", label: String(n + 1), colour: COLOURS[n % COLOURS.length],
        answers: shown.answers[name],
      })),
    ];
    this.panel();
    const films = await Promise.all(shown.films.map(async (facts) => {
      const answer = await fetch(`${base}/${facts.file}`);
      return answer.ok ? { film: await filmOfPicture(await answer.blob(), facts), ...facts } : null;
    }));
    if (this.shown !== shown) return; // another case was opened meanwhile
    this.numbers = films.flatMap((film, n) => (film ? [n] : []));
    const lost = films.every(Boolean) ? [] : [made("p", "An image could not be loaded.", { class: "waiting" })];
    this.tools.hang(films.filter(Boolean).map(({ film, view, is_prior: isPrior }) => (
      { film, title: `${VIEWS[view] ?? view}${isPrior ? ", earlier" : ""}`, overlays: [] }
    )), lost);
    this.redraw();
  }

  // Facts beside the images ------------------------------------------------------------------------------------------

  panel() {
    find("told").replaceChildren(...this.shown.told.flatMap(([name, text]) => [made("dt", name), made("dd", text)]));
    const names = this.groups.length > 1 ? [...this.groups, ""] : this.groups;
    find("groups").replaceChildren(...names.map((name) => {
      const button = made("button", name || "All", { type: "button", "data-group": name });
      button.addEventListener("click", () => this.look(name));
      return button;
    }));
    find("answers").replaceChildren(...this.people.map((one) => this.person(one)));
    this.tools.buttons.marks.hidden = !this.people.some(({ button }) => button);
    this.look(this.group);
  }

  marksOf({ name, answers }) { return answers ? answers.flatMap(({ marks }) => marks) : this.shown.marks[name]; }

  person(one) {
    const item = made("li");
    one.said = made("div", "", { class: "said" });
    item.append(this.marksOf(one).length ? this.switch(one) : made("p", one.name, { class: "name" }), one.said);
    return item;
  }

  /** Return a button, named like a reader or system, that shows or hides their marks. */
  switch(one) {
    const button = made("button", "", { type: "button" });
    const sample = made("span", one.label ?? "", { class: one.answers ? "sample" : "sample reader", "aria-hidden": "true" });
    sample.style.setProperty("--colour", one.colour);
    button.append(sample, made("span", one.name, { class: "name" }));
    if (one.key) button.append(made("kbd", one.key));
    button.addEventListener("click", () => this.toggle(one));
    one.button = button;
    return button;
  }

  /** Show one finding, or all of them if it is "". */
  look(group) {
    this.group = group;
    for (const button of find("groups").children) {
      button.setAttribute("aria-pressed", String(button.dataset.group === group));
    }
    for (const one of this.people) {
      const found = (one.answers ?? []).filter((answer) => !group || answer.group === group);
      one.said.replaceChildren(...found.map((answer) => this.said(answer, !group)));
      if (one.answers && !found.length) one.said.append(made("p", group && !this.shown.groups.includes(group) ? "· not asked" : "· no answer"));
    }
    this.redraw();
  }

  said({ group, result, words }, isNamed) {
    const line = made("p", "", { class: { "+": "right", "-": "wrong", ".": "open" }[result] });
    if (result !== ".") line.append(made("span", `${SIGNS[result]} `, { "aria-hidden": "true" }));
    line.append(isNamed ? `${group}: ${words}` : words);
    return line;
  }

  toggle({ name }) {
    if (!this.off.delete(name)) this.off.add(name);
    this.redraw();
  }

  // What is drawn ----------------------------------------------------------------------------------------------------

  redraw() {
    this.people?.forEach(({ name, button }) => button?.setAttribute("aria-pressed", String(!this.off.has(name))));
    this.tools.viewers.forEach((viewer, n) => {
      const own = this.people.filter(({ name }) => !this.off.has(name));
      viewer.overlays = own.flatMap((one) => this.overlays(one, this.numbers[n]));
      viewer.draw();
    });
  }

  overlays(one, film) {
    const isReference = one.key === "0";
    return this.marksOf(one).filter((mark) => mark.film === film && (!this.group || mark.group === this.group)).flatMap((mark) => {
      const label = one.label ?? (isReference && !this.group ? mark.group : one.name), { colour } = one;
      const at = isReference ? "top" : "bottom";
      mark.drawn ??= mark.masks.map((mask) => drawnMask(mask, colour, isReference));
      const isPointed = mark.points.length > 0; // then the point has the label
      return [
        ...mark.drawn.map((mask) => ({ colour, mask, at, label: isPointed && one.answers ? "" : label })),
        ...mark.boxes.map((rect) => ({ colour, rect, label: isPointed && one.answers ? "" : label })),
        ...mark.points.map((point) => ({ colour, point, label: one.answers ? label : "" })),
      ];
    });
  }

  // Keys -------------------------------------------------------------------------------------------------------------

  /** `code` is the position of the key: Shift with a digit gives another character on each keyboard layout. */
  key(key, isShifted, code) {
    const pressed = isShifted && /^Digit[1-9]$/.test(code) ? `⇧${code.slice(-1)}` : key;
    const person = this.people?.find((one) => one.key === pressed);
    if (person?.button) this.toggle(person);
    else if (key.toLowerCase() === "a") this.turnGroup();
    else return this.tools.key(key, isShifted);
    return true;
  }

  turnGroup() {
    const buttons = [...find("groups").children], at = buttons.findIndex(({ dataset }) => dataset.group === this.group);
    if (buttons.length) this.look(buttons[(at + 1) % buttons.length].dataset.group);
  }
}
