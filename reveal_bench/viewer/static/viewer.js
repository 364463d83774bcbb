// One film in a frame: zoom, move, window and level with mouse, pen, fingers and keys.
// The state is (scale, x, y): screen pixels per film pixel, and the position on the film at the middle of the frame.

const MOST_SCALE = 16, NUDGE = 60, CLICK = 6, RULER = "#7fd3ff";
export const STEP = 1.25;
const KINDS = { model: { colour: "#ff9d3c" }, reference: { colour: "#63d17a", dash: [8, 5] } };

/**
 * The parts for drawing a mask: `area`, its picture in `colour` if it is filled; `outline`, its edge as a path in
 * the mask's own pixels; and its `top` and `bottom`, the positions of labels.
 */
export function drawnMask({ width, height, runs }, colour, isFilled) {
  const inside = new Uint8Array(width * height), outline = new Path2D();
  for (let n = 0, at = 0; n < runs.length; at += runs[n++]) if (n % 2) inside.fill(1, at, at + runs[n]);
  const is = (x, y) => (x >= 0 && y >= 0 && x < width && y < height ? inside[y * width + x] : 0);
  const trace = (rows, columns, differ, line) => {
    for (let row = 0; row <= rows; row++) {
      for (let from = 0, to = 0; from < columns; from = to + 1) {
        for (to = from; to < columns && differ(row, to); to++);
        if (to > from) line(row, from, to);
      }
    }
  };
  const line = (x0, y0, x1, y1) => { outline.moveTo(x0, y0); outline.lineTo(x1, y1); };
  trace(height, width, (y, x) => is(x, y - 1) !== is(x, y), (y, from, to) => line(from, y, to, y));
  trace(width, height, (x, y) => is(x - 1, y) !== is(x, y), (x, from, to) => line(x, from, x, to));
  const share = (at) => [(at % width) / width, Math.floor(at / width) / height];
  const [top, bottom] = [inside.indexOf(1), inside.lastIndexOf(1)].map((at) => share(Math.max(at, 0)));
  return { width, height, outline, top, bottom, area: isFilled ? painted(inside, width, height, colour) : null };
}

function painted(inside, width, height, colour) {
  const canvas = Object.assign(document.createElement("canvas"), { width, height }), context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const shade = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  inside.forEach((is, at) => { if (is) image.data.set([...shade, 255], 4 * at); });
  context.putImageData(image, 0, 0);
  return canvas;
}

export class Viewer {
  /**
   * `onTouch` is called when keys begin to act on this frame. An overlay has a `kind` or a `colour` (and perhaps a
   * `dash`), a `label`, and a `rect`, a `point`, `edges` or a `mask` (from `drawnMask`, with `at`, the labelled end).
   * While `measures`, clicks set the ruler's ends.
   */
  constructor(film, { title, overlays, drag, onTouch, measures }) {
    this.film = film;
    this.overlays = overlays;
    this.drag = drag;
    this.onTouch = onTouch;
    this.measures = measures;
    this.ends = [];
    this.showsMarks = true;
    this.pointers = new Map();
    this.element = document.createElement("figure");
    this.element.className = "view";
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", title);
    this.caption = document.createElement("figcaption");
    this.caption.setAttribute("aria-hidden", "true");
    this.title = title;
    this.remarks = document.createElement("div");
    this.remarks.className = "remarks";
    this.blank = document.createElement("p");
    this.blank.setAttribute("role", "status");
    const notes = document.createElement("p");
    notes.textContent = (film.facts.notes ?? []).join(" · ");
    this.remarks.append(notes, this.blank);
    this.element.append(this.canvas, this.remarks, this.caption);
    this.listen();
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(this.element);
  }

  close() { this.watcher.disconnect(); cancelAnimationFrame(this.frame); }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    const width = Math.round(this.element.clientWidth * ratio), height = Math.round(this.element.clientHeight * ratio);
    if (!width || !height) return;
    const wasFit = this.scale === undefined || Math.abs(this.scale - this.fitScale) < 1e-9;
    this.canvas.width = width;
    this.canvas.height = height;
    if (wasFit) this.fit(); else this.draw();
  }

  get fitScale() {
    const { width, height } = this.film.facts;
    return Math.min(this.canvas.width / width, this.canvas.height / height);
  }

  fit() {
    this.scale = this.fitScale;
    [this.x, this.y] = [this.film.facts.width / 2, this.film.facts.height / 2];
    this.draw();
  }

  fitWindow() { this.film.fitWindow(); this.draw(); }

  choose(preset) {
    if (preset === "fit") this.film.fitWindow(); else this.film.choose(Number(preset));
    this.draw();
  }

  /** Set an end of the ruler at a point of the canvas; the third one begins another ruler. */
  mark(point = this.middle) {
    const { width, height } = this.film.facts, [x, y] = this.position(point);
    const end = [Math.min(width, Math.max(0, x)), Math.min(height, Math.max(0, y))];
    this.ends = this.ends.length === 1 ? [...this.ends, end] : [end];
    this.draw();
  }

  clearRuler() { this.ends = []; this.draw(); }

  get middle() { return [this.canvas.width / 2, this.canvas.height / 2]; }

  /** Position on the film at a point of the canvas. */
  position([atX, atY]) {
    return [this.x + (atX - this.canvas.width / 2) / this.scale, this.y + (atY - this.canvas.height / 2) / this.scale];
  }

  /** Show one film pixel on one screen pixel. */
  one() { this.zoomTo(1, this.canvas.width / 2, this.canvas.height / 2); }

  reset() { this.film.reset(); this.fit(); }

  invert() { this.film.invert(); this.draw(); }

  zoom(factor, atX = this.canvas.width / 2, atY = this.canvas.height / 2) { this.zoomTo(this.scale * factor, atX, atY); }

  /** Set another scale; the film's point at (atX, atY) of the canvas stays there. */
  zoomTo(scale, atX, atY) {
    const next = Math.min(MOST_SCALE, Math.max(Math.min(this.fitScale / 2, 1), scale));
    const dx = atX - this.canvas.width / 2, dy = atY - this.canvas.height / 2;
    this.x += dx / this.scale - dx / next;
    this.y += dy / this.scale - dy / next;
    this.scale = next;
    this.keepInSight();
    this.draw();
  }

  /** Move the film by so many screen pixels. */
  move(dx, dy) {
    this.x -= dx / this.scale;
    this.y -= dy / this.scale;
    this.keepInSight();
    this.draw();
  }

  keepInSight() {
    this.x = Math.min(this.film.facts.width, Math.max(0, this.x));
    this.y = Math.min(this.film.facts.height, Math.max(0, this.y));
  }

  /** Change contrast by `across` and brightness by `along`, in screen pixels: right widens the window, up brightens. */
  tone(across, along) {
    const { center, width } = this.film.window;
    this.film.setWindow(center - along * width * 0.003 * this.brightness, width * Math.exp(across * 0.005));
    this.draw();
  }

  /** 1 if smaller values are darker on the screen, -1 if they are brighter. */
  get brightness() { return this.film.facts.invert !== this.film.inverted ? -1 : 1; }

  key(name, isShifted) {
    const ratio = window.devicePixelRatio || 1, step = NUDGE * ratio;
    const moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (isShifted && moves[name]) this.move(...moves[name]);
    else if (name === "ArrowUp" || name === "+" || name === "=") this.zoom(STEP);
    else if (name === "ArrowDown" || name === "-") this.zoom(1 / STEP);
    else if (name.toLowerCase() === "w") this.tone(isShifted ? 25 : -25, 0);
    else if (name.toLowerCase() === "l") this.tone(0, isShifted ? -15 : 15);
    else return false;
    return true;
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  }

  paint() {
    const { canvas, scale, x, y, film } = this, context = canvas.getContext("2d");
    const left = canvas.width / 2 - x * scale, top = canvas.height / 2 - y * scale;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = "#000";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.imageSmoothingEnabled = scale !== 1;
    context.imageSmoothingQuality = "high";
    context.drawImage(film.painted(scale), left, top, film.facts.width * scale, film.facts.height * scale);
    this.plates = [];
    if (this.showsMarks) {
      const labels = this.overlays.map((mark) => this.paintMark(context, mark, left, top));
      this.overlays.forEach((mark, n) => { if (mark.label) this.write(context, mark.label, ...labels[n]); });
    }
    const blank = film.showsNothing ? "This window shows nothing" : "";
    if (this.blank.textContent !== blank) this.blank.textContent = blank;
    if (this.measures()) this.paintRuler(context, left, top);
    this.describe();
    const { center, width } = film.window;
    Object.assign(canvas.dataset, { scale, x, y, center, width, inverted: film.inverted });
  }

  /** Write the view, its window and zoom, and the value under the pointer or the ruler's middle. */
  describe() {
    const { film, title } = this, { center, width } = film.window;
    const tone = film.table ? "look of the file" : `W ${Math.round(width)} L ${Math.round(center)}`;
    const point = this.hover ?? (this.measures() ? this.middle : undefined);
    const value = point && film.valueAt(this.position(point));
    const parts = [title, tone, film.inverted ? "inverted" : "", `${Math.round(this.scale * 100)}%`];
    if (value !== undefined) parts.push(`${film.facts.unit ?? "value"} ${Number(value.toFixed(2))}`);
    if (this.measures() && this.ends.length === 2) parts.push(film.distance(...this.ends));
    this.caption.textContent = parts.filter(Boolean).join(" · ");
  }

  /** Draw a cross in the middle, for the keyboard, and the ruler, whose second end follows the pointer until it is set. */
  paintRuler(context, left, top) {
    const ratio = window.devicePixelRatio || 1, [middleX, middleY] = this.middle, lines = [];
    const cross = (x, y, size) => lines.push([x - size, y, x + size, y], [x, y - size, x, y + size]);
    const [from, to = this.position(this.hover ?? this.middle)] = this.ends;
    cross(middleX, middleY, 12 * ratio);
    const place = ([x, y]) => [left + x * this.scale, top + y * this.scale];
    if (from) {
      lines.push([...place(from), ...place(to)]);
      for (const end of [from, to]) cross(...place(end), 5 * ratio);
    }
    for (const [colour, width] of [["#000", 4], [RULER, 1.5]]) {
      Object.assign(context, { strokeStyle: colour, lineWidth: width * ratio });
      context.beginPath();
      for (const [x0, y0, x1, y1] of lines) { context.moveTo(x0, y0); context.lineTo(x1, y1); }
      context.stroke();
    }
    if (!from) return;
    const [[x0, y0], [x1, y1]] = [place(from), place(to)];
    this.write(context, this.film.distance(from, to), RULER, [(x0 + x1) / 2 + 8 * ratio, (y0 + y1) / 2 - 8 * ratio]);
  }

  /** Write a text on a dark plate within the canvas, the nearest place clear of the plates written before. */
  write(context, text, colour, [x, y]) {
    const ratio = window.devicePixelRatio || 1, height = 19 * ratio, edge = 5 * ratio;
    context.font = `${13 * ratio}px system-ui, sans-serif`;
    const width = context.measureText(text).width + 2 * edge;
    const left = Math.max(0, Math.min(x - edge, this.canvas.width - width)), first = y - 14 * ratio;
    const isFree = (top) => top >= 0 && top + height <= this.canvas.height && this.plates.every((plate) => (
      Math.abs(plate.top - top) >= height || plate.left >= left + width || left >= plate.left + plate.width
    ));
    const top = [...Array(24).keys()].map((n) => first + height * (n % 2 ? -(n + 1) : n) / 2).find(isFree) ?? first;
    this.plates.push({ left, top, width });
    context.fillStyle = "rgb(0 0 0 / .78)";
    context.fillRect(left, top, width, height);
    context.fillStyle = colour;
    context.fillText(text, left + edge, top + 14 * ratio);
  }

  /** Draw a mark without its label; return the label's colour and place. */
  paintMark(context, mark, left, top) {
    const { colour, dash = [] } = KINDS[mark.kind] ?? mark, { rect, point, mask, edges } = mark;
    const w = this.film.facts.width * this.scale, h = this.film.facts.height * this.scale;
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = 2 * (window.devicePixelRatio || 1);
    context.setLineDash(dash);
    const corner = rect ?? point ?? edges?.[0] ?? mask[mark.at], [x0, y0] = [left + corner[0] * w, top + corner[1] * h];
    if (mask) this.paintMask(context, mask, [left, top, w, h]);
    else if (edges) {
      context.beginPath();
      for (const [fromX, fromY, toX, toY] of edges) {
        context.moveTo(left + fromX * w, top + fromY * h);
        context.lineTo(left + toX * w, top + toY * h);
      }
      context.stroke();
    } else if (rect) context.strokeRect(x0, y0, (rect[2] - rect[0]) * w, (rect[3] - rect[1]) * h);
    else {
      context.beginPath();
      context.arc(x0, y0, 9, 0, 2 * Math.PI);
      context.moveTo(x0 - 15, y0); context.lineTo(x0 + 15, y0);
      context.moveTo(x0, y0 - 15); context.lineTo(x0, y0 + 15);
      context.stroke();
    }
    context.setLineDash([]);
    const isAbove = y0 > top + 20 && mark.at !== "bottom", ratio = window.devicePixelRatio || 1;
    return [colour, [x0 + 4 * ratio, y0 + (isAbove ? -8 : 18) * ratio]];
  }

  /** Draw the transparent area, and its edge in lines of the same width at any scale. */
  paintMask(context, { width, height, outline, area }, [left, top, w, h]) {
    const lineWidth = context.lineWidth;
    if (area) {
      context.globalAlpha = 0.22;
      context.drawImage(area, left, top, w, h);
      context.globalAlpha = 1;
    }
    context.setTransform(w / width, 0, 0, h / height, left, top);
    context.lineWidth = lineWidth / (w / width);
    context.stroke(outline);
    context.setTransform(1, 0, 0, 1, 0, 0);
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 30 : 1;
      this.zoom(Math.exp(-event.deltaY * lines * 0.0015), ...this.at(event));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      this.onTouch(this);
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, this.at(event));
      this.pressed = this.at(event);
      const isToning = event.button === 2 || (this.drag() === "window") !== event.shiftKey;
      this.mode = event.button === 1 ? "move" : isToning ? "window" : "move";
    });
    canvas.addEventListener("pointermove", (event) => {
      this.hover = this.at(event);
      if (this.measures() && this.ends.length === 1) this.draw(); else this.describe();
      this.follow(event);
    });
    canvas.addEventListener("pointerleave", () => { this.hover = undefined; this.draw(); });
    canvas.addEventListener("click", (event) => {
      const [x, y] = this.at(event);
      if (this.measures() && Math.hypot(x - this.pressed[0], y - this.pressed[1]) < CLICK) this.mark([x, y]);
    });
    for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) {
      canvas.addEventListener(end, (event) => this.pointers.delete(event.pointerId));
    }
    canvas.addEventListener("dblclick", () => { if (!this.measures()) this.fit(); });
  }

  follow(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const now = this.at(event);
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const apart = (a) => Math.hypot(a[0] - other[0], a[1] - other[1]);
      this.move((now[0] - before[0]) / 2, (now[1] - before[1]) / 2);
      this.zoom(apart(now) / Math.max(apart(before), 1), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    } else if (this.mode === "window") {
      const ratio = window.devicePixelRatio || 1;
      this.tone((now[0] - before[0]) / ratio, (before[1] - now[1]) / ratio);
    } else this.move(now[0] - before[0], now[1] - before[1]);
    this.pointers.set(event.pointerId, now);
  }

  /** Position of a pointer, in pixels of the canvas. */
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return [
      ((event.clientX - box.left) * this.canvas.width) / box.width,
      ((event.clientY - box.top) * this.canvas.height) / box.height,
    ];
  }
}
