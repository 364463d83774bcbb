// A film in full depth: 16-bit values, a pyramid of halved copies, and the table from values to greys.
// Marks are in fractions of its width and height.
// Window functions: DICOM PS3.3 C.11.2.1.2 and C.11.2.1.3; they apply to `slope * value + intercept`.

const DEPTH = 65536;

/** Values as the server packs them: differences along each row, all high bytes, then all low bytes. */
export function unpack(buffer, width, height) {
  const n = width * height, bytes = new Uint8Array(buffer), values = new Uint16Array(n);
  if (bytes.length !== 2 * n) throw new Error(`a film of ${n} values came with ${bytes.length} bytes`);
  for (let row = 0, at = 0; row < height; row++) {
    let value = 0;
    for (let column = 0; column < width; column++, at++) {
      value = (value + (bytes[at] << 8) + bytes[n + at]) & 0xffff;
      values[at] = value;
    }
  }
  return values;
}

/** Grey of a modality value under a window, from 0 to 1. */
export function shown(value, { center, width, function: kind }) {
  if (kind === "SIGMOID") return 1 / (1 + Math.exp((-4 * (value - center)) / width));
  const c = kind === "LINEAR" ? center - 0.5 : center, w = kind === "LINEAR" ? width - 1 : width;
  if (w <= 0) return value > c ? 1 : 0;
  return Math.min(1, Math.max(0, (value - c) / w + 0.5));
}

/** A film of a picture that the browser decodes: eight bits. The second argument describes the full image. */
export async function filmOfPicture(blob, { width: columns, height: rows, spacing_mm: spacing, spacing_source: source }) {
  const bitmap = await createImageBitmap(blob), { width, height } = bitmap;
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  const { data } = context.getImageData(0, 0, width, height), values = new Uint16Array(width * height);
  for (let at = 0; at < values.length; at++) values[at] = data[4 * at];
  const start = { window: { center: 127.5, width: 255, function: "LINEAR_EXACT" }, table: null };
  return new Film({
    width, height, slope: 1, intercept: 0, invert: false, range: [0, 255], ...start, unit: "JPEG value",
    presets: [{ name: "Full range", ...start }], preset: 0,
    pixel: [rows / height, columns / width], spacing, at_detector: source === "imager_pixel_spacing",
  }, values);
}

export class Film {
  /**
   * `facts` are size, window and the conversion of values to it, and `pixel`, the height and width of a pixel in those
   * of the full image, in which `spacing` is; `values` have 16 bits, row by row.
   */
  constructor(facts, values) {
    this.facts = facts;
    this.levels = [{ width: facts.width, height: facts.height, values }];
    while (Math.min(this.last.width, this.last.height) > 256) this.levels.push(halved(this.last));
    this.counts = counted(values, facts);
    this.greys = new Uint32Array(DEPTH);
    this.version = 0;
    this.reset();
  }

  get last() { return this.levels[this.levels.length - 1]; }

  /** Restore the window or table that the film starts with. */
  reset() {
    this.inverted = false;
    this.look(this.facts);
    this.preset = this.facts.preset;
  }

  /** Show one of the film's presets. */
  choose(preset) {
    this.look(this.facts.presets[preset]);
    this.preset = preset;
  }

  look({ window, table }) {
    this.window = { ...window };
    this.table = table === null ? null : Uint8Array.from(atob(table), (c) => c.charCodeAt(0));
    this.retone();
  }

  /** Set the window from the 1st to the 99th percentile of the film's values, or to all values if these are equal. */
  fitWindow() {
    const { slope, intercept } = this.facts;
    let [low, high] = between(this.counts, 0.01, 0.99);
    if (low === high) [low, high] = between(this.counts, 0, 1);
    if (low === high) return;
    const center = (slope * (low + high)) / 2 + intercept, width = Math.abs(slope) * (high - low);
    this.look({ window: { center, width, function: "LINEAR_EXACT" }, table: null });
    this.preset = "fit";
  }

  /** Set another window; a table of the file no longer applies. */
  setWindow(center, width) {
    const [low, high] = this.facts.range, span = Math.max(high - low, 1);
    this.window.center = Math.min(high + span, Math.max(low - span, center));
    this.window.width = Math.min(4 * span, Math.max(this.window.function === "LINEAR" ? 1 : span / 65536, width));
    this.table = null;
    this.preset = undefined;
    this.retone();
  }

  invert() { this.inverted = !this.inverted; this.retone(); }

  retone() {
    const { slope, intercept, invert } = this.facts, turned = invert !== this.inverted;
    for (let value = 0; value < DEPTH; value++) {
      let grey = this.table ? this.table[value] : Math.round(255 * shown(slope * value + intercept, this.window));
      if (turned) grey = 255 - grey;
      this.greys[value] = (0xff000000 | (grey << 16) | (grey << 8) | grey) >>> 0;
    }
    this.showsNothing = this.isBlank();
    this.version++;
  }

  isBlank() {
    const levels = new Float64Array(256);
    this.counts.forEach((n, value) => { levels[this.greys[value] & 0xff] += n; });
    return isBlank(levels);
  }

  /** The modality value at a position in pixels from the top-left corner; undefined outside. */
  valueAt([x, y]) {
    const { width, height, slope, intercept } = this.facts;
    if (x < 0 || y < 0 || x >= width || y >= height) return undefined;
    return slope * this.levels[0].values[Math.floor(y) * width + Math.floor(x)] + intercept;
  }

  /** The distance of two positions in words: in mm if the spacing of rows and columns is known. */
  distance([x0, y0], [x1, y1]) {
    const { spacing, at_detector: isAtDetector, pixel = [1, 1] } = this.facts;
    const rows = (y1 - y0) * pixel[0], columns = (x1 - x0) * pixel[1];
    if (!spacing) return `${Math.round(Math.hypot(columns, rows))} pixels, mm unknown`;
    const mm = Math.hypot(columns * spacing[1], rows * spacing[0]);
    return `${mm.toFixed(1)} mm${isAtDetector ? " at the detector" : ""}`;
  }

  /** A canvas with the film, the smallest one that is at least `scale` of the full size. */
  painted(scale) {
    let index = 0;
    while (index + 1 < this.levels.length && this.levels[index + 1].width >= this.facts.width * scale) index++;
    const level = this.levels[index];
    if (!level.canvas) {
      level.canvas = document.createElement("canvas");
      level.canvas.width = level.width;
      level.canvas.height = level.height;
    }
    if (level.version !== this.version) {
      const context = level.canvas.getContext("2d");
      const image = context.createImageData(level.width, level.height);
      const pixels = new Uint32Array(image.data.buffer), { values } = level, { greys } = this;
      for (let at = 0; at < values.length; at++) pixels[at] = greys[values[at]];
      context.putImageData(image, 0, 0);
      level.version = this.version;
    }
    return level.canvas;
  }
}

/** True if 98 % of the pixels are black and white, or less than 16 grey levels apart, as in `contrast.py`. */
export function isBlank(levels) {
  const [low, high] = between(levels, 0.01, 0.99), total = levels.reduce((sum, n) => sum + n, 0);
  return high - low < 16 || levels[0] + levels[255] > 0.98 * total;
}

/** The values at proportions of counted pixels in order. */
function between(counts, ...shares) {
  const total = counts.reduce((sum, n) => sum + n, 0);
  return shares.map((share) => {
    const rank = Math.max(1, share * total);
    let value = 0;
    for (let n = counts[0]; n < rank && value < counts.length - 1; n += counts[++value]);
    return value;
  });
}

/**
 * The number of pixels with each value, without those of `padding`, [lowest, highest], and without a border of one
 * value: a collimated field may be a small part of the film, but a letter on empty film is not a picture.
 */
function counted(values, { width, padding }) {
  const counts = new Uint32Array(DEPTH), border = values[0];
  let top = 0, bottom = values.length - 1, left = width - 1, right = 0;
  while (top < bottom && values[top] === border) top++;
  while (bottom > top && values[bottom] === border) bottom--;
  let first = Math.floor(top / width), last = Math.floor(bottom / width);
  for (let row = first; row <= last; row++) {
    const from = row * width, to = from + width - 1;
    for (let at = from; at < from + left; at++) if (values[at] !== border) left = at - from;
    for (let at = to; at > from + right; at--) if (values[at] !== border) right = at - from;
  }
  if ((last - first + 1) * (right - left + 1) < 0.01 * values.length) {
    [first, last, left, right] = [0, values.length / width - 1, 0, width - 1];
  }
  for (let row = first; row <= last; row++) {
    for (let at = row * width + left; at <= row * width + right; at++) counts[values[at]]++;
  }
  if (!padding) return counts;
  const seen = counts.slice().fill(0, padding[0], padding[1] + 1);
  return seen.some((n) => n > 0) ? seen : counts; // padding that is the whole film is a mistake of the file
}

/** An image of half the size, whose pixels are means of four pixels in full depth. */
function halved({ width, height, values }) {
  const w = Math.floor(width / 2), h = Math.floor(height / 2), out = new Uint16Array(w * h);
  for (let y = 0, at = 0; y < h; y++) {
    for (let x = 0, from = 2 * y * width; x < w; x++, at++, from += 2) {
      out[at] = (values[from] + values[from + 1] + values[from + width] + values[from + width + 1] + 2) >> 2;
    }
  }
  return { width: w, height: h, values: out };
}
