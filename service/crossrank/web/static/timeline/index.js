// The timeline: ranks by time on one canvas. This module joins the parts; each part knows one thing (view, tiles, spans, overlay,
// axis, input, controls, details, search, shifts).

import { announce, h } from '../core/dom.js';
import { onTheme } from '../core/theme.js';
import { duration } from '../core/words.js';
import { drawFrame, drawGrid } from './axis.js';
import { Colours } from './colours.js';
import { controls } from './controls.js';
import { details } from './details.js';
import { listen } from './input.js';
import { drawArrows, drawBounds, drawChosen, drawPath } from './overlay.js';
import { nextInRow, nextRow, under } from './choose.js';
import { openSearch } from './search.js';
import { openShifts } from './shifts.js';
import { Spans } from './spans.js';
import { summary } from './summary.js';
import { openTell } from './tell.js';
import { openTip } from './tip.js';
import { facts, find } from './tile.js';
import { Tiles } from './tiles.js';
import { GUTTER_PX, View } from './view.js';

export const draws = ['search', 'details', 'aligned'];
const FIRST_ROWS = 96;
const MOST_WIDTH = 16_384;

/** Mounts the timeline of a job: {update(state, {fresh}), destroy()}. onState(patch, {replace}) tells what the user did. */
export function mountTimeline(element, { job, state: begin, onState, api }) {
  let state = begin;
  let chosen = null; // {ref, group, seq}
  let frame = null;
  let tile = null;
  let isPlaced = false;
  let ended = false;
  const stats = { frames: 0, paintMs: 0, shown: null, firstShown: null };
  const view = new View();
  const colours = new Colours();
  const aligned = () => state.aligned ?? 'repaired';
  const mode = () => JSON.stringify([aligned(), search.text, state.r1 ?? '', state.attempt ?? null]);
  const path = (part, query) => api.jobPath(job, part, { attempt: state.attempt, aligned: aligned(), ...query });
  const need = () => Tiles.need(view, mode());
  const draw = () => { frame ??= requestAnimationFrame(paint); };
  const spans = new Spans(colours, draw);
  const shifts = openShifts(draw);
  const tell = openTell(onState);
  const search = openSearch((text) => api.get(path('timeline/search', { q: text, limit: 1000 }), { exact: false }));
  const tiles = new Tiles(ask, arrived, fail);
  const bar = controls({
    times: (word) => tell.now({ aligned: word === 'repaired' ? null : word }, false), layer: draw, search: (text) => tell.now({ q: text || null }, true),
    hit: (sign) => goToHit(sign), ranks: (text) => tell.now({ r1: text || null, r0: null }, false),
    zoom(factor) { view.zoom(factor); moved(); }, all() { view.showAll(); moved(); },
  });
  const panel = details({ choose: (ref) => choose(ref, true), close: () => { choose(null); canvas.focus(); } });
  const canvas = h('canvas', { tabindex: '0', role: 'application', 'aria-roledescription': 'timeline', 'aria-label': 'Timeline of ranks by time',
    'aria-describedby': 'timeline-keys timeline-summary', 'data-test': 'timeline-canvas' });
  const words = h('p', { id: 'timeline-summary', class: 'visually-hidden', 'data-test': 'timeline-summary' });
  const tip = openTip();
  const fault = h('p', { class: 'notice bad', role: 'alert', hidden: true });
  const keys = h('p', { id: 'timeline-keys', class: 'timeline-keys quiet small' },
    'Wheel zooms, drag pans, A D pan, W S zoom, 0 shows all, . , next and previous span, J K next and previous row, Enter opens, / searches');
  const stage = h('div', { class: 'timeline-stage' }, canvas, tip.element);
  const root = h('div', { class: 'timeline', 'data-test': 'timeline-picture' }, bar.element, fault, h('div', { class: 'timeline-body' }, stage, panel.element), keys, words);
  root.timelineView = { view, stats, tiles, get tile() { return tile; }, get chosen() { return chosen; } };
  element.append(root);

  listen(canvas, view, {
    moved, click: (x, y) => pick(under(tile, view, x, y)), hover: showTip, leave: tip.hide,
    next: (sign) => pick(nextInRow(tile, view, chosen?.index ?? null, sign)), nextRow: (sign) => pick(nextRow(tile, view, chosen?.index ?? null, sign)),
    open: () => (chosen ? panel.focus() : pick(nextInRow(tile, view, null, 1))), cancel: () => choose(null), search: bar.focusSearch,
  });
  const watch = new ResizeObserver(resize);
  watch.observe(stage);
  const stopTheme = onTheme(() => { colours.read(); spans.forget(); draw(); });
  if (state.t0 !== undefined && state.t1 !== undefined) {
    view.range = { from: Number(state.t0), to: Number(state.t1) };
    view.show(view.range.from, view.range.to);
  }
  update(state);
  api.get(path('clocks', { aligned: null }), { exact: false }).then(({ domains }) => { shifts.learn(domains); draw(); }, () => {});

  async function ask(need, signal) {
    const query = { from: need.from, to: need.to, width: Math.min(need.width, MOST_WIDTH), rows: need.rows, row_from: need.rowFrom || null,
      ranks: state.r1 || null, q: search.text || null };
    if (isPlaced) return api.get(path('timeline', query), { exact: false, signal });
    const whole = state.t0 === undefined ? { from: null, to: null, width: Math.round(view.plotPx) } : {};
    const answer = await api.get(path('timeline', { ...query, ...whole, rows: FIRST_ROWS, locate: state.rank }), { exact: false, signal });
    Object.assign(need, { from: answer.from_ns, to: answer.to_ns, level: answer.pixel_ns, rows: FIRST_ROWS }); // what it turned out to be
    return answer;
  }

  function arrived() {
    fault.hidden = true;
    if (!isPlaced) place(tiles.best(need()));
    cancelAnimationFrame(frame);
    paint(); // at once: the next frame may be 16 ms away
  }

  function fail(problem) {
    fault.hidden = false;
    fault.textContent = `The timeline cannot be shown. ${problem.message}`;
    if (problem.status === undefined) throw problem;
  }

  /** The first answer says how long the job is and how many rows there are: now the address can be looked up in it. */
  function place(first, isNewStep = false) {
    isPlaced = true;
    learn(first);
    if (state.t0 !== undefined && state.t1 !== undefined && !isNewStep) view.show(Number(state.t0), Number(state.t1));
    else {
      const within = first.steps.filter(({ step }) => (state.step !== undefined ? step === state.step : step >= (state.from ?? step + 1) && step <= (state.to ?? step)));
      if (within.length === 0) view.showAll();
      else {
        const margin = (within.at(-1).end - within[0].start) * 0.08;
        view.show(within[0].start - margin, within.at(-1).end + margin);
      }
    }
    const row = state.rank === undefined ? null : first.located ?? rowOfRank(first, state.rank);
    if (state.r0 !== undefined) view.top = Number(state.r0) * view.rowPx;
    else if (row !== null) view.top = Math.max(0, (row - 3) * view.rowPx);
    view.keepInside();
    tiles.want(need());
    if (state.span && state.span !== chosen?.ref) choose(state.span, state.t0 === undefined);
  }

  function rowOfRank(first, rank) {
    const local = first.rows.findIndex((row) => row.rank === rank);
    return local < 0 ? null : local + first.rowFrom;
  }

  function learn(known) {
    view.range = { from: Math.min(0, known.steps[0]?.start ?? 0), to: Math.max(known.endNs, 1) };
    if (view.rowCount !== known.totalRows) view.setRows(known.totalRows, Math.max(1, ...known.rows.map(({ depth }) => depth)));
  }

  function paint() {
    frame = null;
    if (ended || !isPlaced) return;
    const began = performance.now();
    const now = need();
    tile = tiles.best(now);
    if (tile === null) return;
    learn(tile);
    const ratio = devicePixelRatio || 1;
    const context = canvas.getContext('2d', { alpha: false });
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = colours.background;
    context.fillRect(0, 0, view.width, view.height);
    drawGrid(context, view, colours, tile.steps);
    spans.draw(context, view, tile, ratio, shifts.now());
    if (bar.layers.arrows) drawArrows(context, view, colours, tile, chosen);
    if (bar.layers.path) drawPath(context, view, colours, tile);
    if (bar.layers.bounds) drawBounds(context, view, colours, tile, chosen?.ref ?? null);
    const index = chosen?.ref ? find(tile, chosen.ref) : null;
    if (chosen) chosen.index = index;
    if (index !== null) drawChosen(context, view, colours, tile, index);
    drawFrame(context, view, colours, tile, index === null ? null : facts(tile, index).row, (rank) => shifts.text(rank, tile.need.mode.startsWith('["raw"') ? 'raw' : aligned()));
    stats.frames += 1;
    stats.paintMs = performance.now() - began;
    if (sameNeed(tile.need, now)) stats.shown = performance.now();
    stats.firstShown ??= performance.now();
    root.dataset.ready = '1';
    const text = summary(view, tile, aligned());
    if (words.textContent !== text) words.textContent = text;
  }

  function sameNeed(a, b) {
    return a.from === b.from && a.to === b.to && a.level === b.level && a.mode === b.mode && a.rowFrom === b.rowFrom && a.rows === b.rows;
  }

  function moved() {
    tip.hide();
    tiles.want(need());
    draw();
    tell.soon({ t0: String(Math.round(view.t0)), t1: String(Math.round(view.t1)), r0: String(Math.floor(view.top / view.rowPx)) });
  }

  function pick(index) {
    if (index === null) {
      choose(null);
      return;
    }
    const known = facts(tile, index);
    if (known.ref === null) {
      panel.show(known, tile.bounds.get(known.row - tile.rowFrom));
      const margin = Math.max((known.end - known.start) * 0.5, 100);
      view.show(known.start - margin, known.end + margin);
      moved();
      return;
    }
    panel.show(known, tile.bounds.get(known.row - tile.rowFrom));
    announce(`${known.name || known.kind}, rank ${known.rank}, ${known.lane}, ${duration(known.end - known.start)}`);
    view.reveal(known.row, known.start, known.end);
    choose(known.ref);
  }

  /** Chooses a span by `rank:id`, null for none; look: moves to it. */
  async function choose(ref, look = false) {
    if (ref === (chosen?.ref ?? null) && !look) return;
    chosen = ref === null ? null : { ref, group: null, seq: null, index: null };
    if ((state.span ?? null) !== ref) tell.now({ span: ref }, false);
    draw();
    if (ref === null) {
      panel.clear();
      return;
    }
    const [rank, id] = ref.split(':');
    const answer = await panel.load(ref, () => api.get(path(`spans/${encodeURIComponent(rank)}/${encodeURIComponent(id)}`, {})));
    if (answer === null || chosen?.ref !== ref || ended) return;
    chosen.group = answer.span.group ?? null;
    chosen.seq = answer.span.seq ?? null;
    if (look && tile) await lookAt(answer.span);
    draw();
  }

  async function lookAt(span) {
    const [start, last] = aligned() === 'raw' ? [span.raw_start, span.raw_end] : [span.start, span.end];
    const end = last ?? tile.endNs;
    const local = tile.rows.findIndex((row) => row.rank === span.rank && row.lane === span.lane);
    const row = local >= 0 ? local + tile.rowFrom : (await api.get(path('timeline', { width: 1, rows: 1, locate: span.rank, ranks: state.r1 || null }), { exact: false })).located_row;
    view.reveal(row ?? null, start, end);
    if (end - start < 2 * view.nsPerPx) view.show(start - (end - start + 1000) * 20, end + (end - start + 1000) * 20);
    moved();
  }

  async function goToHit(sign) {
    const hit = search.next(sign, (view.t0 + view.t1) / 2);
    bar.say(search.said());
    if (hit !== null) await choose(`${hit.rank}:${hit.id}`, true);
  }

  function showTip(x, y) {
    const index = under(tile, view, x, y);
    canvas.classList.toggle('over-span', index !== null);
    if (index === null) tip.hide();
    else tip.show(facts(tile, index), x, y, view.width);
  }

  function resize() {
    const box = stage.getBoundingClientRect();
    const ratio = devicePixelRatio || 1;
    if (box.width < 10) return;
    canvas.width = Math.round(box.width * ratio);
    canvas.height = Math.round(box.height * ratio);
    view.resize(box.width, box.height);
    if (view.rowCount) view.setRows(view.rowCount, view.levels);
    spans.forget();
    tiles.want(need());
    if (isPlaced) paint();
  }

  function update(next, { fresh = false } = {}) {
    if (fresh) tiles.outdate();
    const before = state;
    state = next;
    bar.set({ aligned: aligned(), q: state.q ?? '', ranks: state.r1 ?? '' });
    if ((before.aligned ?? 'repaired') !== aligned()) shifts.begin(before.aligned ?? 'repaired', aligned());
    if (search.text !== (state.q ?? '')) {
      spans.forget();
      search.find(state.q ?? '').then(() => bar.say(search.said()), fail);
      bar.say(search.said());
    }
    const isSame = ['t0', 't1', 'r0', 'step', 'rank', 'from', 'to'].every((key) => String(before[key] ?? '') === String(state[key] ?? ''));
    if (!isPlaced || before === state) tiles.want(need());
    else {
      if (!isSame && differs()) place(tile ?? tiles.best(need()), before.step !== state.step);
      tiles.want(need());
    }
    if (isPlaced && (state.span ?? null) !== (chosen?.ref ?? null)) choose(state.span ?? null, true);
    draw();
  }

  /** Whether the address asks for another place than the one that is seen (it repeats what was told before). */
  function differs() {
    if (state.t0 === undefined || state.t1 === undefined) return true;
    return Math.abs(Number(state.t0) - view.t0) > view.nsPerPx || Math.abs(Number(state.t1) - view.t1) > view.nsPerPx
      || Math.abs(Number(state.r0 ?? 0) - Math.floor(view.top / view.rowPx)) > 1;
  }

  return {
    update,
    destroy() {
      ended = true;
      tell.stop();
      tiles.stop();
      watch.disconnect();
      stopTheme();
      root.remove();
    },
  };
}
