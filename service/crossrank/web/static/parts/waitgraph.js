// Who waits for whom, as a picture: waiters of one operation are one box on the left, those they wait for on the right.

import { h, svg } from '../core/dom.js';
import { ranksText, stretches } from '../core/words.js';

const WIDTH = 1100;
const LEFT = 360;
const RIGHT = 300;
const ROW = 54;
const BOX = 40;
const MOST = 24;

/** The picture of a standstill; its table beside it says the same. */
export function waitGraph({ waiting, culprits, deadlock }) {
  const groups = grouped(waiting).slice(0, MOST);
  const wanted = [...new Set(groups.flatMap((group) => group.key))];
  const targets = [...new Map(wanted.map((text) => [text, groups.find((group) => group.key.includes(text)).targets.get(text)]))].slice(0, MOST);
  if (targets.length === 0) return h('p', { class: 'quiet' }, 'All members of what is open have come: nobody waits for another rank.');
  const height = ROW * Math.max(groups.length, targets.length) + 8;
  const y = (index, many) => (height / many) * (index + 0.5);
  const blamed = new Set([...culprits.map((one) => one.rank), ...deadlock]);
  const row = new Map(targets.map(([text], index) => [text, y(index, targets.length)]));
  const arrows = groups.flatMap((group, index) => group.key.filter((text) => row.has(text)).map((text) => svg('path', {
    class: 'wait-arrow', 'marker-end': 'url(#wait-head)',
    d: curve(LEFT, y(index, groups.length), WIDTH - RIGHT - 6, row.get(text)),
  })));
  return svg('svg', { class: 'waits', viewBox: `0 0 ${WIDTH} ${height}`, role: 'img', 'aria-label': groups.map(sentence).join('. '), 'data-test': 'wait-graph' },
    svg('defs', {}, svg('marker', { id: 'wait-head', viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: 'auto' }, svg('path', { d: 'M0 0L8 4L0 8Z' }))),
    arrows,
    groups.map((group, index) => box(0, y(index, groups.length), LEFT, ranksText(group.ranks), group.what, false)),
    targets.map(([text, ranks]) => box(WIDTH - RIGHT, row.get(text), RIGHT, `${ranks.length === 1 ? 'rank' : 'ranks'} ${text}`,
      ranks.some((rank) => blamed.has(rank)) ? 'holds the job up' : 'waited for', ranks.some((rank) => blamed.has(rank)))));
}

/** Waiters of one operation with the same missing ranks are one; most waiters first. */
function grouped(waiting) {
  const out = new Map();
  for (const one of waiting) {
    const what = [one.op, one.group !== null && `in ${one.group}`, one.seq !== null && `#${one.seq}`].filter(Boolean).join(' ');
    const parts = one.waits_for.length <= 4 ? one.waits_for.map((rank) => [rank]) : [one.waits_for];
    const key = JSON.stringify([what, one.waits_for]);
    if (!out.has(key)) out.set(key, { what, ranks: [], targets: new Map(parts.map((ranks) => [stretches(ranks), ranks])) });
    out.get(key).ranks.push(one.rank);
  }
  return [...out.values()].map((group) => ({ ...group, key: [...group.targets.keys()] })).sort((a, b) => b.ranks.length - a.ranks.length);
}

function sentence(group) {
  return `${ranksText(group.ranks)} in ${group.what} wait for ${group.key.join(', ') || 'nobody'}`;
}

function curve(x0, y0, x1, y1) {
  const middle = (x0 + x1) / 2;
  return `M${x0} ${y0}C${middle} ${y0} ${middle} ${y1} ${x1} ${y1}`;
}

function box(x, y, width, title, detail, blamed) {
  return svg('g', { class: blamed ? 'wait-box blamed' : 'wait-box' },
    svg('title', {}, `${title}: ${detail}`),
    svg('rect', { x: x + 1, y: y - BOX / 2, width: width - 2, height: BOX, rx: 6 }),
    svg('text', { x: x + 12, y: y - 3, class: 'wait-title' }, short(title, width / 8.6)),
    svg('text', { x: x + 12, y: y + 13, class: 'wait-detail' }, short(detail, width / 6.6)));
}

function short(text, letters) {
  const most = Math.floor(letters) - 2;
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
