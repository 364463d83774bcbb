// Criteria that are scored one after another. The current criterion shows the words of all scores, the others only
// the words of the selected score.

import { made } from "./made.js";

export class Scales {
  /** `onScore` is called for every score. */
  constructor(place, onScore) {
    this.place = place;
    this.onScore = onScore;
    this.asked = [];
  }

  show(asked, own) {
    this.asked = asked ?? [];
    this.scores = { ...own };
    this.place.hidden = !this.asked.length;
    this.place.replaceChildren(...this.asked.map((scale) => this.made(scale)));
    this.hand(0);
  }

  made({ name, title, scores }) {
    const group = made("fieldset", "", { "data-name": name });
    group.append(made("legend", title), ...scores.map(({ score, text }) => {
      const label = made("label", "", { title: text });
      const box = made("input", "", { type: "radio", name: `score-${name}`, value: score });
      box.checked = this.scores[name] === score;
      box.addEventListener("change", () => this.give(name, score));
      label.append(box, made("b", String(score)), made("span", text));
      return label;
    }));
    group.addEventListener("focusin", () => this.hand(this.asked.findIndex((one) => one.name === name)));
    return group;
  }

  /** Make a criterion the current one. */
  hand(at) {
    this.at = at;
    [...this.place.children].forEach((group, number) => group.classList.toggle("current", number === at));
  }

  give(name, score) {
    this.scores[name] = score;
    this.onScore();
  }

  /** Score the current criterion and move to the next. */
  key(name) {
    const step = { j: 1, k: -1 }[name];
    if (!this.asked.length || (!step && !/^[1-5]$/.test(name))) return false;
    if (step) this.go(this.at + step);
    else {
      const { name: criterion } = this.asked[this.at];
      this.place.children[this.at].querySelector(`[value="${name}"]`).checked = true;
      this.give(criterion, Number(name));
      this.go(this.at + 1);
    }
    return true;
  }

  go(at) {
    const hadFocus = this.place.contains(document.activeElement);
    this.hand(Math.min(this.asked.length - 1, Math.max(0, at)));
    const group = this.place.children[this.at];
    if (hadFocus) (group.querySelector(":checked") ?? group.querySelector("input")).focus({ preventScroll: true });
    group.scrollIntoView({ block: "nearest" });
  }

  /** Return the titles of criteria without a score, and make the first of them current. */
  lacking() {
    const left = this.asked.filter(({ name }) => !this.scores[name]);
    if (left.length) this.go(this.asked.indexOf(left[0]));
    return left.map(({ title }) => title);
  }
}
