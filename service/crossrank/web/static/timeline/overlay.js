// What connects ranks: the critical path, arrows from a collective's last arriver to those who waited, and how far a row's clock may
// be off (whiskers). Rows outside of the page of rows that is held are left out; lines to them end at the edge.

import { duration } from '../core/words.js';
import { AXIS_PX, GUTTER_PX } from './view.js';
import { find, localRow } from './tile.js';

const MOST_ARROWS = 300;
const WHISKER_LEAST_PX = 2;

/** The chain of work and transfers that made the steps as long as they were. */
export function drawPath(context, view, colours, tile) {
  context.lineJoin = 'round';
  context.strokeStyle = colours.mark;
  const width = tile.path.length > 400 ? 1.5 : 3;
  let last = null;
  for (const part of tile.path) {
    const y = yOf(view, tile, part.row, part.rank, view.rowPx - 2);
    const x1 = view.x(part.start);
    const x2 = view.x(part.end);
    if (y !== null && x2 >= GUTTER_PX - 4000 && x1 <= view.width + 4000) {
      context.lineWidth = width;
      context.beginPath();
      if (last && Math.abs(last.x - x1) < 8000) {
        context.moveTo(last.x, last.y);
        context.lineTo(x1, y);
      } else context.moveTo(x1, y);
      context.lineTo(Math.max(x2, x1 + 1), y);
      context.stroke();
    }
    last = y === null ? null : { x: x2, y };
  }
}

/** One curve from the last arriver's start to the end of each waiter. */
export function drawArrows(context, view, colours, tile, chosen) {
  let drawn = 0;
  for (const arrow of tile.arrows) {
    if (drawn >= MOST_ARROWS) break;
    const x1 = view.x(arrow.from.at);
    const y1 = yOf(view, tile, arrow.from.row, arrow.from.rank);
    const isChosen = chosen !== null && chosen.group !== null && chosen.group === arrow.group && chosen.seq === arrow.seq;
    for (const to of arrow.to) {
      const x2 = view.x(to.at);
      if (Math.max(x1, x2) < GUTTER_PX || Math.min(x1, x2) > view.width) continue;
      const y2 = yOf(view, tile, to.row, to.rank);
      if (y1 === null || y2 === null || y1 === y2) continue;
      drawn += 1;
      curve(context, x1, y1, x2, y2, isChosen ? colours.accent : colours.quiet, isChosen ? 2 : 1);
    }
    if (y1 !== null && arrow.bound_ns) whisker(context, view, x1, y1, -arrow.bound_ns, arrow.bound_ns, colours.warn);
  }
}

function curve(context, x1, y1, x2, y2, stroke, width) {
  context.globalAlpha = width > 1 ? 1 : 0.55;
  context.strokeStyle = stroke;
  context.fillStyle = stroke;
  context.lineWidth = width;
  const bend = Math.max(12, Math.abs(x2 - x1) / 2);
  context.beginPath();
  context.moveTo(x1, y1);
  context.bezierCurveTo(x1 + bend / 2, y1, x2 - bend, y2, x2, y2);
  context.stroke();
  context.beginPath();
  context.moveTo(x2, y2);
  context.lineTo(x2 - 6, y2 - 3);
  context.lineTo(x2 - 6, y2 + 3);
  context.fill();
  context.globalAlpha = 1;
}

/** How far each row may be off, beside its label, and around the chosen span. */
export function drawBounds(context, view, colours, tile, chosenRef) {
  const { first, end } = view.rows();
  for (let row = first; row < end; row += 1) {
    const local = localRow(tile, row);
    const bound = local === null ? null : tile.bounds.get(local);
    if (!bound) continue;
    const y = view.y(row) + view.rowPx - 3;
    if (bound.lo === null || bound.hi === null) unknown(context, y, colours.bad);
    else if ((bound.hi - bound.lo) / view.nsPerPx >= WHISKER_LEAST_PX) {
      const middle = GUTTER_PX + Math.min(60, -bound.lo / view.nsPerPx + 4);
      whisker(context, view, middle, y, bound.lo, bound.hi, colours.warn);
    }
  }
  const index = chosenRef === null ? null : find(tile, chosenRef);
  if (index === null) return;
  for (let local = 0; local < tile.rows.length; local += 1) {
    if (index >= tile.ptr[local + 1]) continue;
    const bound = tile.bounds.get(local);
    const y = view.y(tile.rowFrom + local) + view.rowPx / 2;
    if (bound && bound.lo !== null && bound.hi !== null) {
      whisker(context, view, view.x(tile.start[index]), y, bound.lo, bound.hi, colours.text);
      whisker(context, view, view.x(tile.end[index]), y, bound.lo, bound.hi, colours.text);
    }
    return;
  }
}

function whisker(context, view, x, y, lo, hi, stroke) {
  const x1 = x + lo / view.nsPerPx;
  const x2 = x + hi / view.nsPerPx;
  if (x2 - x1 < WHISKER_LEAST_PX || x2 < GUTTER_PX || x1 > view.width) return;
  context.strokeStyle = stroke;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(x1, y);
  context.lineTo(x2, y);
  context.moveTo(x1, y - 3);
  context.lineTo(x1, y + 3);
  context.moveTo(x2, y - 3);
  context.lineTo(x2, y + 3);
  context.stroke();
}

function unknown(context, y, fill) {
  context.fillStyle = fill;
  context.fillRect(GUTTER_PX - 4, y - 4, 3, 6);
}

/** A frame around the chosen span. */
export function drawChosen(context, view, colours, tile, index) {
  for (let local = 0; local < tile.rows.length; local += 1) {
    if (index >= tile.ptr[local + 1]) continue;
    const levels = Math.max(1, tile.rows[local].depth ?? 1);
    const height = (view.rowPx - 3) / levels;
    const x = Math.max(view.x(tile.start[index]), GUTTER_PX - 3);
    const width = Math.min(view.x(tile.end[index]), view.width + 3) - x;
    if (width < -3) return;
    context.strokeStyle = colours.text;
    context.lineWidth = 2;
    context.strokeRect(x - 1, view.y(tile.rowFrom + local) + tile.depth[index] * height, Math.max(width, 2) + 2, height + 2);
    return;
  }
}

/** Words for a bound: 'right within 12 µs', or that nothing relates the clock. */
export function boundText(bound) {
  if (!bound) return null;
  if (bound.lo === null || bound.hi === null) return 'nothing relates this clock to the others';
  if (bound.lo === 0 && bound.hi === 0) return 'the reference of all others';
  return `right within −${duration(-bound.lo)} / +${duration(bound.hi)}`;
}

function yOf(view, tile, row, rank, below = view.rowPx / 2) {
  if (row !== null && row !== undefined) return view.y(tile.rowFrom + row) + below;
  if (tile.rows.length === 0) return null;
  return rank < tile.rows[0].rank ? AXIS_PX : rank > tile.rows.at(-1).rank ? view.height : null;
}
