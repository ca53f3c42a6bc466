// What the correction did: how far each rank's clock is moved, and rows that slide from one kind of times to the other.

import { change } from '../core/words.js';

const SLIDE_MS = 450;

/** openShifts(): learns offsets of clocks from /clocks; text(rank, aligned) and a slide after a switch of times. */
export function openShifts(redraw) {
  let offsets = new Map();
  let slide = null;
  const calm = matchMedia('(prefers-reduced-motion: reduce)');
  const offset = (rank, aligned) => (aligned === 'raw' ? 0 : offsets.get(rank) ?? 0);
  return {
    learn(domains) {
      offsets = new Map(domains.flatMap(({ ranks, offset_ns: ns }) => (ns === null || ns === undefined ? [] : ranks.map((rank) => [rank, Number(ns)]))));
    },
    /** '+12.3 ms' beside a rank whose stamps were moved; 'as stamped' in raw times. */
    text(rank, aligned) {
      if (!offsets.has(rank)) return null;
      if (offsets.get(rank) === 0) return 'reference clock';
      return aligned === 'raw' ? `off by ${change(-offsets.get(rank))}` : `moved ${change(offsets.get(rank))}`;
    },
    begin(from, to) {
      if (calm.matches || (from === 'raw') === (to === 'raw')) return;
      slide = { from, to, since: performance.now() };
      redraw();
    },
    /** A function rank -> ns that its row is shown away from its place now, or null at rest. */
    now() {
      if (slide === null) return null;
      const part = (performance.now() - slide.since) / SLIDE_MS;
      if (part >= 1) {
        slide = null;
        return null;
      }
      redraw();
      const left = (1 - part) ** 3;
      const { from, to } = slide;
      return (rank) => (offset(rank, from) - offset(rank, to)) * left;
    },
  };
}
