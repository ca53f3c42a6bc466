// Which span is meant: under the pointer, or the next one by keys.

import { GUTTER_PX } from './view.js';
import { firstFrom, localRow, rowOf, spanAt } from './tile.js';

const SLACK_PX = 3;

/** The index of the span at a point, or null. */
export function under(tile, view, x, y) {
  const row = view.rowAt(y);
  const local = tile === null || row === null || x < GUTTER_PX ? null : localRow(tile, row);
  if (local === null) return null;
  const levels = Math.max(1, tile.rows[local].depth ?? 1);
  const depth = Math.min(levels - 1, Math.floor((y - view.y(row) - 1) / ((view.rowPx - 3) / levels)));
  const time = view.time(x);
  return spanAt(tile, local, time, SLACK_PX * view.nsPerPx, depth) ?? spanAt(tile, local, time, SLACK_PX * view.nsPerPx);
}

/** The span after (sign 1) or before (-1) the chosen one on its row; without one, the first that is seen. */
export function nextInRow(tile, view, index, sign) {
  if (tile === null) return null;
  if (index === null) {
    const { first, end } = view.rows();
    for (let row = first; row < end; row += 1) {
      const local = localRow(tile, row);
      const found = local === null ? null : firstFrom(tile, local, view.t0);
      if (found !== null && found < tile.ptr[local + 1] && tile.start[found] <= view.t1) return found;
    }
    return null;
  }
  const local = rowOf(tile, index);
  const next = index + sign;
  return next >= tile.ptr[local] && next < tile.ptr[local + 1] ? next : index;
}

/** The span of the next (sign 1) or previous row that has one nearest in time to the chosen one. */
export function nextRow(tile, view, index, sign) {
  if (tile === null || index === null) return nextInRow(tile, view, null, 1);
  const middle = (tile.start[index] + tile.end[index]) / 2;
  for (let local = rowOf(tile, index) + sign; local >= 0 && local < tile.rows.length; local += sign) {
    const at = spanAt(tile, local, middle, 0);
    if (at !== null) return at;
    const after = firstFrom(tile, local, middle);
    if (tile.ptr[local + 1] > tile.ptr[local]) return Math.min(after, tile.ptr[local + 1] - 1);
  }
  return index;
}
