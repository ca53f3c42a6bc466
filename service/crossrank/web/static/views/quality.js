// What is not in the answers, and why: refused, repeated, missing, unmatched, open and damaged, by rank and reason.

import { h } from '../core/dom.js';
import { load } from '../core/load.js';
import { count, plural, ranksText } from '../core/words.js';

const ROWS_MOST = 300;
const CLASSES = {
  rejected: ['Refused', 'bad', (n) => `${plural(n, 'event')} refused`], unusable: ['Not usable', 'bad', (n) => `${plural(n, 'event')} of no use to the analyses`],
  damaged: ['Damaged', 'bad', (n) => `${plural(n, 'damaged file')} set aside`], missing: ['Missing', 'bad', (n) => `${plural(n, 'operation')} that others recorded and some rank did not`],
  late: ['Late', 'warn', (n) => `${plural(n, 'event')} came late`], conflict: ['Sent twice, differing', 'warn', (n) => `${plural(n, 'event')} sent twice with different content`],
  unmatched: ['Without the other side', 'warn', (n) => `${plural(n, 'operation')} without the other side`], open: ['Still open', 'warn', (n) => `${plural(n, 'span')} still open`],
  duplicate: ['Sent twice', null, null],
};

/** Mounts the view; see main.js for what views are. */
export function mount(host, context, start) {
  const verdict = h('div', { class: 'stack', 'data-test': 'quality', id: 'quality' });
  let only = null;
  host.append(h('h1', {}, 'How good is the data?'), verdict);
  const draw = ({ job, attempt, rank }) => load(verdict, async () => {
    const [{ rows, totals, total, accepted, ranks }, { ranks: seen, partial, truncated }] = await Promise.all([
      context.api.get(context.api.jobPath(job, 'quality', { attempt })), context.job.summary()]);
    return { rows, totals, total, accepted, perRank: ranks, seen, partial: partial ?? [], truncated, rank: rank ?? null, only };
  }, (value) => tell(value, (chosen) => { only = chosen; draw(context.state()); }), { what: 'the data quality' });
  draw(start);
  return { update: draw, refresh: draw };
}

function tell(value, choose) {
  const { rows, totals, accepted, perRank, seen, partial, truncated, rank, only } = value;
  const faults = [
    ...Object.entries(totals).filter(([name, many]) => many > 0 && CLASSES[name]?.[2]).map(([name, many]) => CLASSES[name][2](many)),
    seen.missing_count > 0 && `${plural(seen.missing_count, 'rank')} sent nothing`,
    truncated && 'answers were cut at a limit',
  ].filter(Boolean);
  const shown = rows.filter((row) => (only === null || row.class === only) && (rank === null || row.rank === rank || row.rank === null));
  return [
    faults.length === 0
      ? h('p', { class: 'notice good', 'data-test': 'quality-sentence' }, `All ${plural(seen.seen.length, 'rank')} reported; ${plural(accepted, 'event')} accepted, and all of them are in the answers.`)
      : h('p', { class: 'notice warn', 'data-test': 'quality-sentence' }, `Of ${plural(accepted, 'accepted event')} and what else was sent: ${faults.join('; ')}.`),
    seen.missing_count > 0 && panel('Missing ranks', null, h('p', { 'data-test': 'missing-ranks' }, `${ranksText(seen.missing)}${seen.missing.length < seen.missing_count ? ` and ${count(seen.missing_count - seen.missing.length)} more` : ''}.`),
      h('p', { class: 'quiet' }, 'A rank that sends nothing can be neither blamed nor cleared: look at its exporter and at its way to this service.')),
    rows.length > 0 && panel('By rank and reason', filters(totals, only, choose),
      table(['What', 'Rank', 'Reason', 'How many', 'What it means'], shown.slice(0, ROWS_MOST).map((row) => [
        CLASSES[row.class]?.[0] ?? words(row.class), row.rank === null ? 'all' : String(row.rank), words(row.reason ?? ''), number(row.count, CLASSES[row.class]?.[1]), row.sentence])),
      cut(shown)),
    partial.length > 0 && panel('Damaged files', null, h('ul', {}, partial.slice(0, ROWS_MOST).map((text) => h('li', {}, text)))),
    perRank.length > 0 && panel('Ranks', null, rankTable(perRank)),
  ];
}

function filters(totals, only, choose) {
  const button = (name, title) => h('button', { type: 'button', 'data-key': `class-${name}`, 'aria-pressed': String(only === name), on: { click: () => choose(name) } }, title);
  return h('span', { class: 'switch', role: 'group', 'aria-label': 'What to list' }, button(null, 'All'),
    Object.entries(totals).filter(([, many]) => many > 0).map(([name, many]) => button(name, `${CLASSES[name]?.[0] ?? words(name)} ${count(many)}`)));
}

/** Rows as the service gives them: the columns are the counts that any rank has. */
function rankTable(rows) {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row).filter((key) => key !== 'rank' && Number(row[key]) > 0)))];
  if (columns.length === 0) return h('p', {}, 'Nothing to report of any rank.');
  return [table(['Rank', ...columns.map(words)], rows.slice(0, ROWS_MOST).map((row) => [`rank ${row.rank}`, ...columns.map((key) => count(row[key] ?? 0))])), cut(rows)];
}

function panel(title, tools, ...content) {
  return h('section', { class: 'panel' }, h('header', {}, h('h2', {}, title), tools), content);
}

function table(titles, rows) {
  return h('div', { class: 'scroll' }, h('table', {}, h('thead', {}, h('tr', {}, titles.map((title) => h('th', { scope: 'col' }, title)))),
    h('tbody', {}, rows.map(([first, ...rest]) => h('tr', { 'data-test': 'quality-row' }, h('th', { scope: 'row' }, first), rest.map((cell) => h('td', {}, cell)))))));
}

function number(value, tone) {
  return value > 0 && tone ? h('span', { class: `tag ${tone}` }, count(value)) : count(value);
}

function cut(rows) {
  return rows.length > ROWS_MOST ? h('p', { class: 'quiet' }, `The first ${ROWS_MOST} of ${count(rows.length)} are shown.`) : null;
}

function words(name) {
  return [...new Set(name.split('_'))].join(' ');
}
