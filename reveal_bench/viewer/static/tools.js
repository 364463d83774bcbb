// The images of a page and their tools: buttons, a list of windows, and keys. They act on the active image.

import { made } from "./made.js";
import { STEP, Viewer } from "./viewer.js";

// Action, label, key, and a name for screen readers. `null` is the place of the list of windows.
const BUTTONS = [
  ["invert", "Invert", "I"], ["fit", "Fit", "F"], null, ["smaller", "−", "", "Zoom out"], ["larger", "+", "", "Zoom in"],
  ["whole", "Whole", "Z"], ["one", "1:1", "O"], ["reset", "Reset", "R"], ["drag", "Drag: move", "D"],
  ["ruler", "Ruler", "M"], ["views", "One view", "V"], ["marks", "Marks", "G"],
];
const STATES = ["invert", "drag", "ruler", "views", "marks"]; // of buttons that stay pressed
// Keys between backticks, and what they do.
const HELP = [
  ["Wheel, `↑` `↓`", "Zoom"], ["Drag, `Shift` + arrows", "Move"], ["Right drag, `D` then drag", "Window and level"],
  ["`W`, `Shift`+`W`", "More, less contrast"], ["`L`, `Shift`+`L`", "Brighter, darker"], ["`I`", "Invert"],
  ["`F`", "Window of the image's values"], ["`P`", "Next preset window"], ["`Z` `O` `R`", "Whole image, 1:1, reset"],
  ["`M`, two clicks", "Ruler; drag still moves"], ["`X`", "End of the ruler in the middle"], ["`←` `→`", "Other image"],
  ["`V`", "One view, side by side"], ["`G`", "Marks on and off"],
];

export class Tools {
  /** `stage` holds the images, `bar` the buttons, and `help` the rows of a table of keys. */
  constructor(stage, bar, help) {
    Object.assign(this, { stage, viewers: [], active: null, drag: "move", measures: false, single: false });
    this.acts = {
      invert: () => this.active?.invert(),
      fit: () => this.active?.fitWindow(),
      preset: () => this.nextPreset(),
      whole: () => this.active?.fit(),
      larger: () => this.active?.zoom(STEP),
      smaller: () => this.active?.zoom(1 / STEP),
      one: () => this.active?.one(),
      reset: () => this.active?.reset(),
      drag: () => { this.drag = this.drag === "move" ? "window" : "move"; },
      ruler: () => { this.measures = !this.measures; this.viewers.forEach((viewer) => viewer.clearRuler()); },
      mark: () => { if (this.measures) this.active?.mark(); },
      views: () => { this.single = !this.single && this.viewers.length > 1; },
      marks: () => this.viewers.forEach((viewer) => { viewer.showsMarks = !viewer.showsMarks; viewer.draw(); }),
    };
    this.keys = { p: "preset", x: "mark" };
    this.buttons = {};
    bar.append(...BUTTONS.map((button) => (button ? this.button(...button) : this.list())));
    help.append(...HELP.map(([keys, text]) => helpRow(keys, text)));
  }

  button(name, label, key, spoken) {
    const button = made("button", "", { type: "button", "data-tool": name, ...(spoken && { "aria-label": spoken }) });
    button.append(made("span", label), ...(key ? [" ", made("kbd", key)] : []));
    button.addEventListener("click", () => this.act(name));
    if (key) this.keys[key.toLowerCase()] = name;
    this.buttons[name] = button;
    return button;
  }

  list() {
    const label = made("label", "Window ", { class: "presets" });
    this.presets = made("select", "", { id: "presets" });
    this.presets.addEventListener("change", () => {
      if (this.presets.value) this.active.choose(this.presets.value);
      this.reflect();
    });
    label.append(made("kbd", "P"), " ", this.presets);
    return label;
  }

  /** Show images, each with `film`, `title` and `overlays`, and after them elements about images that are missing. */
  hang(images, missing = []) {
    this.close();
    this.viewers = images.map(({ film, title, overlays }) => new Viewer(film, {
      title, overlays, drag: () => this.drag, measures: () => this.measures, onTouch: (viewer) => this.activate(viewer),
    }));
    this.stage.replaceChildren(...this.viewers.map(({ element }) => element), ...missing);
    this.activate(this.viewers[0] ?? null);
  }

  /** Remove the images; `text` is shown in their place. */
  close(text = "") {
    this.viewers.forEach((viewer) => viewer.close());
    this.viewers = [];
    this.active = null;
    this.stage.replaceChildren(made("p", text, { class: "waiting" }));
  }

  activate(viewer) {
    this.active = viewer;
    this.reflect();
  }

  act(name) {
    this.acts[name]();
    this.reflect();
  }

  /** Handle a key; return true if it belongs to an image. */
  key(key, isShifted) {
    const name = this.keys[key.toLowerCase()];
    if (this.active?.key(key, isShifted)) this.reflect();
    else if (key === "ArrowLeft" || key === "ArrowRight") return this.turn(key === "ArrowLeft" ? -1 : 1);
    else if (name) this.act(name);
    else return false;
    return true;
  }

  turn(step) {
    const { viewers, active } = this;
    if (viewers.length < 2) return false;
    this.activate(viewers[(viewers.indexOf(active) + step + viewers.length) % viewers.length]);
    return true;
  }

  /** Show the preset after the current one; the fitted window comes last. */
  nextPreset() {
    if (!this.active) return;
    const { facts, preset } = this.active.film, names = [...facts.presets.keys(), "fit"];
    this.active.choose(names[(names.indexOf(preset) + 1) % names.length]);
  }

  reflect() {
    const { viewers, active, single, stage, buttons } = this, several = viewers.length > 1;
    stage.classList.toggle("single", single && several);
    stage.style.setProperty("--columns", single ? 1 : Math.min(viewers.length || 1, 3));
    viewers.forEach((viewer) => viewer.element.classList.toggle("active", viewer === active && several));
    this.listPresets(active?.film);
    const states = [active?.film.inverted, this.drag === "window", this.measures, single, active?.showsMarks ?? true];
    STATES.forEach((name, n) => buttons[name].setAttribute("aria-pressed", String(states[n] ?? false)));
    buttons.drag.firstChild.textContent = `Drag: ${this.drag}`;
    buttons.views.hidden = !several;
  }

  /** List the ways of display of a film; a window set by hand is none of them. */
  listPresets(film) {
    const options = (film?.facts.presets ?? []).map(({ name, window: { center, width }, table }, n) => (
      made("option", table ? `${name}: table` : `${name}: W ${Math.round(width)} L ${Math.round(center)}`, { value: n })
    ));
    if (film) options.push(made("option", "Fit to values", { value: "fit" }));
    if (film && film.preset === undefined) options.unshift(made("option", "By hand", { value: "" }));
    this.presets.replaceChildren(...options);
    this.presets.value = film?.preset ?? "";
  }
}

/** True if a key pressed in a field is meant for the field; letters and digits in the list of windows are not. */
export function isForField({ target, key }) {
  return target.matches("textarea, select") && !(target.id === "presets" && /^\w$/.test(key));
}

/** A row of a table of keys, of which `keys` has those between backticks. */
export function helpRow(keys, text) {
  const row = made("tr"), head = made("th", "", { scope: "row" });
  head.append(...keys.split("`").map((part, n) => (n % 2 ? made("kbd", part) : part)));
  row.append(head, made("td", text));
  return row;
}
