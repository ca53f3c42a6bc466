// Asks for what is seen and a little around it; keeps answers; knows the best picture there is meanwhile.
//
// Windows are cut on a grid (a power of two of ns per pixel, whole blocks of pixels and rows), so that a return to a place finds its
// answer. A request that still helps is left to finish, one for another scale or place is broken off. Answers are kept until they
// hold MOST_SPANS spans together.

import { decode } from './tile.js';

const BLOCK_PX = 256;
const BLOCK_ROWS = 8;
const MOST_ROWS = 256;
const MOST_SPANS = 1_500_000;
const DEBOUNCE_MS = 40;

export class Tiles {
  /** ask(need, signal) -> answer; onTile() after each answer; onFault(fault). */
  constructor(ask, onTile, onFault) {
    this.ask = ask;
    this.onTile = onTile;
    this.onFault = onFault;
    this.kept = new Map();
    this.spans = 0;
    this.flight = null;
    this.timer = null;
    this.wanted = null;
    this.askedAt = -Infinity;
    this.version = 0;
  }

  /** What to ask for to see a view. mode: everything else that changes the answer, as one string. */
  static need(view, mode) {
    const level = 2 ** Math.round(Math.log2(view.nsPerPx));
    const block = level * BLOCK_PX;
    const from = (Math.floor(view.t0 / block) - 1) * block;
    const to = (Math.ceil(view.t1 / block) + 1) * block;
    const seen = view.rows();
    const rowFrom = Math.max(0, (Math.floor(seen.first / BLOCK_ROWS) - 1) * BLOCK_ROWS);
    const rows = Math.min(MOST_ROWS, (Math.ceil(seen.end / BLOCK_ROWS) + 1) * BLOCK_ROWS - rowFrom);
    return { mode, level, from: Math.floor(from), to: Math.ceil(to), width: Math.round((to - from) / level), rowFrom, rows };
  }

  /** Says what is seen now; fetches it unless it is here. */
  want(need) {
    this.wanted = need;
    if (this.lookUp(need)) return;
    clearTimeout(this.timer);
    if (this.flight === null) this.fetchSoon();
    else if (!helps(this.flight.need, need)) {
      this.flight.control.abort();
      this.flight = null;
      this.fetchSoon();
    }
  }

  /** At once after a pause, else when the hand has rested for a moment. */
  fetchSoon() {
    clearTimeout(this.timer);
    if (performance.now() - this.askedAt > DEBOUNCE_MS * 2) this.fetchWanted();
    else this.timer = setTimeout(() => this.fetchWanted(), DEBOUNCE_MS);
  }

  async fetchWanted() {
    const need = this.wanted;
    if (need === null || this.flight !== null || this.lookUp(need)) return;
    const flight = { need, control: new AbortController(), version: this.version };
    this.flight = flight;
    this.askedAt = performance.now();
    try {
      const answer = await this.ask(need, flight.control.signal);
      if (flight.control.signal.aborted) return;
      this.keep(decode(answer, need), flight.version);
      this.flight = null;
      this.onTile();
      if (this.wanted !== need && !this.lookUp(this.wanted)) this.fetchSoon();
    } catch (fault) {
      if (flight.control.signal.aborted || fault.name === 'AbortError') return;
      this.flight = null;
      this.onFault(fault);
    }
  }

  keep(tile, version) {
    tile.version = version;
    const key = keyOf(tile.need);
    this.spans += tile.count - (this.kept.get(key)?.count ?? 0);
    this.kept.delete(key);
    this.kept.set(key, tile);
    for (const [old, { count }] of this.kept) {
      if (this.spans <= MOST_SPANS || old === key) break;
      this.kept.delete(old);
      this.spans -= count;
    }
  }

  lookUp(need) {
    const key = keyOf(need);
    const tile = this.kept.get(key);
    if (!tile || tile.version !== this.version) return null;
    this.kept.delete(key);
    this.kept.set(key, tile); // used last
    return tile;
  }

  /** The best tile for a need: itself, else what covers most of it at the nearest scale, in the same mode if there is one. */
  best(need) {
    const exact = this.lookUp(need);
    if (exact) return exact;
    let best = null;
    let most = -Infinity;
    for (const tile of this.kept.values()) {
      const score = coverage(tile.need, need) * 4 - Math.abs(Math.log2(tile.need.level / need.level)) * 0.15
        + (tile.need.mode === need.mode ? 8 : 0) + (tile.version === this.version ? 0.5 : 0);
      if (score > most) {
        most = score;
        best = tile;
      }
    }
    return best;
  }

  /** The job has changed: what is kept is drawn until newer answers are here. */
  outdate() {
    this.version += 1;
  }

  stop() {
    clearTimeout(this.timer);
    this.flight?.control.abort();
    this.wanted = null;
  }
}

function keyOf({ mode, level, from, to, rowFrom, rows }) {
  return `${mode}|${level}|${from}|${to}|${rowFrom}|${rows}`;
}

function helps(flying, need) {
  return flying.mode === need.mode && flying.level === need.level && coverage(flying, need) > 0.3;
}

function coverage(a, b) {
  const time = Math.min(a.to, b.to) - Math.max(a.from, b.from);
  const rows = Math.min(a.rowFrom + a.rows, b.rowFrom + b.rows) - Math.max(a.rowFrom, b.rowFrom);
  return Math.max(0, time / (b.to - b.from)) * Math.max(0, rows / b.rows);
}
