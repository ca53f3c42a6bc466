// Draws the spans of a tile. Many spans are drawn once to a picture in memory, wider than what is seen, and moved or stretched while
// the user pans or zooms; it is drawn sharp again when the hand rests. Few spans are drawn afresh in every frame.

import { AXIS_PX, GUTTER_PX, View } from './view.js';
import { localRow } from './tile.js';

const FEW = 6000;
const MARGIN_PX = 300;
const LABEL_PX = 34;
const REST_MS = 90;

export class Spans {
  constructor(colours, redraw) {
    this.colours = colours;
    this.redraw = redraw;
    this.picture = null;
    this.timer = null;
  }

  /** Forgets the picture (theme, size or search changed). */
  forget() {
    this.picture = null;
  }

  /** Draws a tile onto a context scaled to CSS pixels. shift(row) -> ns that a row is moved by, or null. */
  draw(context, view, tile, ratio, shift) {
    if (tile.count <= FEW || shift) {
      this.paint(context, view, tile, shift);
      return;
    }
    const { picture } = this;
    const fits = picture && picture.tile === tile && picture.ratio === ratio;
    if (fits && covers(picture.view, view) && picture.view.nsPerPx === view.nsPerPx) this.blit(context, view);
    else if (fits && covers(picture.view, view) && this.timer === null) {
      this.blit(context, view);
      this.sharpenSoon();
    } else if (fits && this.timer !== null && covers(picture.view, view)) this.blit(context, view);
    else {
      this.take(view, tile, ratio);
      this.blit(context, view);
    }
  }

  sharpenSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.timer = null;
      this.picture = null;
      this.redraw();
    }, REST_MS);
  }

  take(view, tile, ratio) {
    clearTimeout(this.timer);
    this.timer = null;
    const wide = Object.assign(new View(), view);
    wide.width = view.width + 2 * MARGIN_PX;
    wide.t0 = view.t0 - MARGIN_PX * view.nsPerPx;
    wide.t1 = view.t1 + MARGIN_PX * view.nsPerPx;
    wide.height = view.height + 2 * MARGIN_PX;
    wide.top = view.top - MARGIN_PX;
    const canvas = this.picture?.canvas ?? document.createElement('canvas');
    canvas.width = Math.round(wide.width * ratio);
    canvas.height = Math.round(wide.height * ratio);
    const context = canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, wide.width, wide.height);
    this.paint(context, wide, tile, null);
    this.picture = { canvas, view: wide, tile, ratio };
  }

  blit(context, view) {
    const { canvas, view: wide, ratio } = this.picture;
    const left = view.x(wide.t0);
    const width = (wide.t1 - wide.t0) / view.nsPerPx;
    const top = AXIS_PX + (wide.top - view.top);
    context.imageSmoothingEnabled = width !== wide.plotPx;
    context.drawImage(canvas, GUTTER_PX * ratio, AXIS_PX * ratio, canvas.width - GUTTER_PX * ratio, canvas.height - AXIS_PX * ratio,
      left, top, width, wide.height - AXIS_PX);
  }

  paint(context, view, tile, shift) {
    const first = Math.max(0, Math.floor(view.top / view.rowPx));
    const last = Math.min(view.rowCount, Math.ceil((view.top + view.height) / view.rowPx));
    const fill = tile.kinds.map((kind) => this.colours.kind(kind));
    context.font = this.colours.font(11);
    context.textBaseline = 'middle';
    for (let row = first; row < last; row += 1) {
      const local = localRow(tile, row);
      if (local !== null) this.row(context, view, tile, local, view.y(row), fill, shift?.(tile.rows[local].rank) ?? 0);
    }
  }

  row(context, view, tile, local, y, fill, shift) {
    const levels = Math.max(1, tile.rows[local].depth ?? 1);
    const height = Math.max(1, (view.rowPx - 3) / levels);
    const right = view.width;
    for (let i = tile.ptr[local]; i < tile.ptr[local + 1]; i += 1) {
      const x1 = Math.max(view.x(tile.start[i] + shift), GUTTER_PX - 2);
      const x2 = Math.min(view.x(tile.end[i] + shift), right);
      if (x2 < GUTTER_PX || x1 > right) continue;
      const width = Math.max(x2 - x1, 1);
      const top = y + 1 + tile.depth[i] * height;
      context.globalAlpha = (tile.merged[i] > 1 ? 0.55 : 0.9) * (tile.hit && !tile.hit[i] ? 0.25 : 1);
      context.fillStyle = fill[tile.kind[i]];
      context.fillRect(x1, top, width > 3 ? width - 0.5 : width, height);
      if (tile.hit?.[i]) this.outline(context, x1, top, width, height);
      if (tile.open?.[i] && x2 < right) this.ragged(context, x2, top, height);
      if (width > LABEL_PX && height >= 10) this.label(context, tile, i, x1, top, width, height);
    }
    context.globalAlpha = 1;
  }

  outline(context, x, y, width, height) {
    context.globalAlpha = 1;
    context.strokeStyle = this.colours.text;
    context.lineWidth = 1.5;
    context.strokeRect(x + 0.5, y + 0.5, Math.max(width - 1, 1), height - 1);
  }

  /** An operation that has not ended: its end is only the end of what was recorded. */
  ragged(context, x, y, height) {
    context.globalAlpha = 1;
    context.strokeStyle = this.colours.bad;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x, y + height);
    context.stroke();
  }

  label(context, tile, index, x, y, width, height) {
    const many = tile.merged[index] > 1;
    const text = many ? `${tile.merged[index]} spans` : tile.names[tile.name[index]] ?? '';
    const room = Math.floor((width - 8) / 5.8);
    if (room < 3) return;
    context.globalAlpha = 1;
    context.fillStyle = '#ffffff';
    context.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, x + 4, y + height / 2, width - 6);
  }
}

function covers(wide, view) {
  return wide.t0 <= view.t0 && wide.t1 >= view.t1 && wide.top <= view.top && wide.top + wide.height >= view.top + view.height
    && wide.rowPx === view.rowPx && wide.rowCount === view.rowCount && wide.nsPerPx < view.nsPerPx * 4;
}
