// The frame of the picture: time ticks, step bands above it, and the labels of the rows beside it.

import { duration } from '../core/words.js';
import { AXIS_PX, GUTTER_PX } from './view.js';
import { localRow } from './tile.js';

const TICK_PX = 110;
const NICE = [1, 2, 5, 10];

/** Round distance between ticks that are about TICK_PX apart. */
export function tickNs(nsPerPx) {
  const wanted = nsPerPx * TICK_PX;
  const power = 10 ** Math.floor(Math.log10(wanted));
  return power * NICE.find((n) => n * power >= wanted * 0.999);
}

/** Grid lines and row stripes, below the spans. */
export function drawGrid(context, view, colours, steps) {
  const { first, end } = view.rows();
  context.fillStyle = colours.band;
  for (let row = first + (first % 2); row < end; row += 2) {
    context.globalAlpha = 0.5;
    context.fillRect(GUTTER_PX, view.y(row), view.plotPx, view.rowPx);
  }
  context.globalAlpha = 1;
  context.fillStyle = colours.line;
  forTicks(view, (x) => context.fillRect(x, AXIS_PX, 1, view.height));
  context.fillStyle = colours.strong;
  for (const step of steps) {
    const x = Math.round(view.x(step.start));
    if (x >= GUTTER_PX && x <= view.width) context.fillRect(x, AXIS_PX / 2, 1, view.height);
  }
}

function forTicks(view, draw) {
  const every = tickNs(view.nsPerPx);
  for (let n = Math.ceil(view.t0 / every); n * every <= view.t1; n += 1) draw(Math.round(view.x(n * every)), n * every, every);
}

/** Times and steps above, row labels at the left; over the spans, so that nothing shines through. */
export function drawFrame(context, view, colours, tile, chosenRow, movedText) {
  context.textBaseline = 'middle';
  context.fillStyle = colours.background;
  context.fillRect(0, 0, view.width, AXIS_PX);
  drawSteps(context, view, colours, tile.steps);
  context.font = colours.font(11);
  context.fillStyle = colours.quiet;
  forTicks(view, (x, time, every) => {
    if (x > GUTTER_PX - 1 && x < view.width - 30) context.fillText(tickText(time, every), x + 4, AXIS_PX - 9);
  });
  context.fillStyle = colours.strong;
  context.fillRect(0, AXIS_PX - 1, view.width, 1);
  drawLabels(context, view, colours, tile, chosenRow, movedText);
}

function tickText(time, every) {
  if (time === 0) return '0';
  const [unit, name] = every >= 1e9 ? [1e9, 's'] : every >= 1e6 ? [1e6, 'ms'] : every >= 1e3 ? [1e3, 'µs'] : [1, 'ns'];
  const decimals = 0;
  return `${(time / unit).toLocaleString('en', { maximumFractionDigits: decimals })} ${name}`;
}

function drawSteps(context, view, colours, steps) {
  context.font = colours.font(11, '600');
  for (const { step, start, end } of steps) {
    const x1 = Math.max(view.x(start), GUTTER_PX);
    const x2 = Math.min(view.x(end), view.width);
    if (x2 - x1 < 1) continue;
    context.fillStyle = colours.soft;
    context.fillRect(x1 + 1, 2, x2 - x1 - 1, AXIS_PX / 2 - 4);
    const text = x2 - x1 > 64 ? `step ${step}` : String(step);
    if (x2 - x1 > text.length * 7 + 4) {
      context.fillStyle = colours.text;
      context.fillText(text, x1 + 5, AXIS_PX / 4 + 1);
    }
  }
}

function drawLabels(context, view, colours, tile, chosenRow, movedText) {
  context.fillStyle = colours.background;
  context.fillRect(0, 0, GUTTER_PX, view.height);
  context.fillStyle = colours.strong;
  context.fillRect(GUTTER_PX - 1, 0, 1, view.height);
  const { first, end } = view.rows();
  for (let row = first; row < end; row += 1) {
    const y = view.y(row);
    if (y < AXIS_PX - view.rowPx) continue;
    const local = localRow(tile, row);
    if (row === chosenRow) {
      context.fillStyle = colours.soft;
      context.fillRect(0, y, GUTTER_PX - 1, view.rowPx);
    }
    if (local === null) continue;
    const { rank, lane } = tile.rows[local];
    const isFirst = local === 0 || tile.rows[local - 1].rank !== rank;
    const middle = y + view.rowPx / 2;
    context.font = colours.font(Math.min(12, view.rowPx - 1), '600');
    context.fillStyle = colours.text;
    if (isFirst) context.fillText(`rank ${rank}`, 6, middle, 66);
    context.font = colours.font(Math.min(11, view.rowPx - 1));
    context.fillStyle = colours.faint;
    const moved = isFirst && view.rowPx >= 24 ? movedText(rank) : null;
    context.fillText(lane, 76, moved ? middle - 6 : middle, GUTTER_PX - 82);
    if (moved) {
      context.fillStyle = colours.accent;
      context.fillText(moved, 76, middle + 6, GUTTER_PX - 82);
    }
  }
  context.fillStyle = colours.background;
  context.fillRect(0, 0, GUTTER_PX - 1, AXIS_PX - 1);
  context.fillStyle = colours.faint;
  context.font = colours.font(11);
  context.fillText(`${duration(view.t1 - view.t0)} wide`, 6, AXIS_PX - 9, GUTTER_PX - 12);
}
