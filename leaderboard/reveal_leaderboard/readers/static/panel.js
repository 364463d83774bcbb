// The panel beside the images: labels or texts, the choice of answers, scores, comment, ticks.

import { made } from "./made.js";
import { Scales } from "./scales.js";

const find = (id) => document.getElementById(id);

export class Panel {
  constructor(onChange) {
    this.onChange = onChange;
    this.comment = find("comment");
    this.comment.addEventListener("input", () => this.changed());
    this.scales = new Scales(find("scales"), () => this.choose(this.asked.scored));
  }

  /** Show the questions, and the reader's own answer, if any. */
  show(asked, own) {
    this.asked = asked;
    this.answer = own?.answer ?? "";
    this.wasReminded = false;
    this.comment.value = own?.comment ?? "";
    find("heading").textContent = asked.heading;
    find("entries").replaceChildren(
      ...asked.entries.flatMap(({ name, text }) => [made("dt", name), made("dd", text)]),
    );
    find("texts").replaceChildren(
      ...(asked.texts ?? []).flatMap(({ name, text }) => [made("h3", name), made("p", text)]),
    );
    find("panel").classList.toggle("wide", Boolean(asked.scales));
    this.scales.show(asked.scales, asked.scales && own?.details);
    this.showChoices();
    this.showTicks(own?.details);
    this.isDirty = false;
    this.refresh();
    find("scroll").scrollTop = 0;
  }

  showChoices() {
    find("choices").replaceChildren(...this.asked.choices.map(({ value, label, key, text }) => {
      const button = made("button", "", { type: "button", "data-value": value, "aria-pressed": "false" });
      const words = made("span", label);
      if (text) words.append(made("small", text));
      button.append(made("kbd", key.toUpperCase()), words);
      button.addEventListener("click", () => this.choose(value));
      return button;
    }));
  }

  showTicks(details) {
    const { ticks } = this.asked;
    find("ticks").hidden = ticks === null;
    if (ticks === null) return;
    const ticked = new Set(details ?? ticks.from);
    this.wereGiven = Array.isArray(details);
    find("ticks").open = this.wereGiven;
    find("tick-list").replaceChildren(...ticks.labels.map(({ name, text }) => {
      const label = made("label", "", { title: text }), box = made("input", "", { type: "checkbox", value: name });
      box.checked = ticked.has(name);
      box.addEventListener("change", () => this.changed());
      label.append(box, made("span", name));
      return label;
    }));
  }

  /** Handle a key; return true if it belongs to an answer. */
  key(name) {
    if (this.scales.key(name)) return true;
    const choice = this.asked.choices.find(({ key }) => key === name);
    if (choice) this.choose(choice.value);
    return choice !== undefined;
  }

  choose(value) {
    this.answer = value;
    this.wasReminded = false;
    this.changed();
    if (this.asked.asked.includes(value)) this.comment.focus();
  }

  get choice() { return this.asked.choices.find(({ value }) => value === this.answer); }

  changed() {
    this.isDirty = true;
    this.refresh();
    this.onChange();
  }

  refresh() {
    for (const button of find("choices").children) {
      button.setAttribute("aria-pressed", String(button.dataset.value === this.answer));
    }
    find("more").hidden = !this.choice;
    find("scales").classList.toggle("unread", this.answer === "cannot_read");
    find("why").textContent = this.choice?.why ?? "Comment";
    const takesTicks = this.asked.ticks !== null && !["agree_all", "cannot_read"].includes(this.answer);
    find("ticks").hidden = !takesTicks;
  }

  openTicks() {
    if (find("more").hidden || find("ticks").hidden) return;
    find("ticks").open = true;
    find("tick-list").querySelector("input").focus();
  }

  /** Return the answer to send, or null with the reason in `lacks`. */
  read() {
    this.lacks = "";
    if (this.asked.scales && this.answer !== "cannot_read") return this.readScores();
    if (!this.answer) {
      this.lacks = "Choose an answer first.";
      return null;
    }
    const comment = this.comment.value.trim(), details = this.details();
    if (this.asked.asked.includes(this.answer) && !comment && details === null && !this.wasReminded) {
      this.wasReminded = true;
      this.lacks = "Say in a word what is not right – or save once more to go on without.";
      this.comment.focus();
      return null;
    }
    return { answer: this.answer, comment, details };
  }

  readScores() {
    const lacking = this.scales.lacking();
    if (lacking.length) this.lacks = `Without a score yet: ${lacking.join(", ")}.`;
    return lacking.length ? null : { answer: this.asked.scored, comment: "", details: this.scales.scores };
  }

  details() {
    if (this.asked.ticks === null || find("ticks").hidden) return null;
    const ticked = [...find("tick-list").querySelectorAll("input:checked")].map((box) => box.value);
    const isSame = ticked.join() === this.asked.ticks.from.join();
    return isSame && !this.wereGiven ? null : ticked;
  }
}
