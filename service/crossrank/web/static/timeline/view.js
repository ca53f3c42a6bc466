// What part of the picture is seen: a time window and a vertical scroll, and the scales between those and pixels.
//
// Times are ns from the job's base (whole numbers below 2^53, exact in a Number). Rows all have one height, so thousands of them
// need no layout: row r begins at AXIS_PX + r * rowPx - top.

export const GUTTER_PX = 148;
export const AXIS_PX = 40;
const SHORTEST_NS = 50;
const LEVEL_PX = 11;
const MARGIN = 0.02;

/** Keeps value within [least, most]. */
export function clamp(value, least, most) {
  return Math.min(Math.max(value, least), most);
}

export class View {
  constructor() {
    this.t0 = 0;
    this.t1 = 1e9;
    this.top = 0;
    this.rowPx = 18;
    this.width = 800;
    this.height = 400;
    this.range = { from: 0, to: 1e9 };
    this.rowCount = 0;
    this.levels = 1;
  }

  get plotPx() {
    return Math.max(1, this.width - GUTTER_PX);
  }

  get nsPerPx() {
    return (this.t1 - this.t0) / this.plotPx;
  }

  x(time) {
    return GUTTER_PX + (time - this.t0) / this.nsPerPx;
  }

  time(x) {
    return this.t0 + (x - GUTTER_PX) * this.nsPerPx;
  }

  y(row) {
    return AXIS_PX + row * this.rowPx - this.top;
  }

  /** The row under a height, or null outside of all rows. */
  rowAt(y) {
    const row = Math.floor((y - AXIS_PX + this.top) / this.rowPx);
    return y >= AXIS_PX && row >= 0 && row < this.rowCount ? row : null;
  }

  /** First row that is seen, and the one after the last. */
  rows() {
    const first = clamp(Math.floor(this.top / this.rowPx), 0, Math.max(0, this.rowCount - 1));
    const shown = Math.ceil((this.height - AXIS_PX) / this.rowPx) + 1;
    return { first, end: Math.max(first + 1, Math.min(this.rowCount, first + shown)) };
  }

  resize(width, height) {
    this.width = width;
    this.height = height;
    this.keepInside();
  }

  /** How many rows there are, and how many levels of nesting at most; few rows grow to fill the height. */
  setRows(count, levels) {
    this.rowCount = count;
    this.levels = levels;
    const least = clamp(LEVEL_PX * levels + 3, 14, 34);
    this.rowPx = clamp(Math.floor((this.height - AXIS_PX) / Math.max(1, count)), least, 42);
    this.keepInside();
  }

  show(from, to) {
    const length = Math.max(to - from, SHORTEST_NS);
    this.t0 = from;
    this.t1 = from + length;
    this.keepInside();
  }

  showAll() {
    const margin = (this.range.to - this.range.from) * MARGIN;
    this.show(this.range.from - margin, this.range.to + margin);
  }

  /** factor < 1 zooms in; the time at x stays where it is. */
  zoom(factor, x = GUTTER_PX + this.plotPx / 2) {
    const most = (this.range.to - this.range.from) * (1 + 2 * MARGIN) * 1.5;
    const length = clamp((this.t1 - this.t0) * factor, SHORTEST_NS, Math.max(most, SHORTEST_NS));
    const fixed = this.time(x);
    const share = (fixed - this.t0) / (this.t1 - this.t0);
    this.show(fixed - share * length, fixed + (1 - share) * length);
  }

  pan(dx, dy = 0) {
    const shift = dx * this.nsPerPx;
    this.t0 += shift;
    this.t1 += shift;
    this.top += dy;
    this.keepInside();
  }

  /** Scrolls as little as needed to see a row and a time window. */
  reveal(row, from, to) {
    if (row !== null) {
      const room = this.height - AXIS_PX - 2 * this.rowPx;
      this.top = clamp(this.top, (row + 1) * this.rowPx - room, row * this.rowPx - this.rowPx);
    }
    if (to < this.t0 || from > this.t1) {
      const half = Math.max((this.t1 - this.t0) / 2, (to - from) * 1.5);
      const middle = (from + to) / 2;
      this.show(middle - half, middle + half);
    }
    this.keepInside();
  }

  keepInside() {
    const length = this.t1 - this.t0;
    const least = this.range.from - length / 2;
    const most = this.range.to + length / 2;
    if (this.t0 < least) this.t0 = least;
    if (this.t0 + length > most) this.t0 = Math.max(least, most - length);
    this.t1 = this.t0 + length;
    this.top = clamp(this.top, 0, Math.max(0, this.rowCount * this.rowPx - (this.height - AXIS_PX)));
  }
}
