// What is not in the answers, and why: refused, repeated, late, missing and unmatched, by rank and reason.

import { h } from '../core/dom.js';
import { absent, load } from '../core/load.js';
import { count, plural, ranksText } from '../core/words.js';

const ROWS_MOST = 200;
const COUNTS = [
  ['stored', 'Stored', 'events that the answers rest on', null],
  ['open', 'Still open', 'begun and not ended: at the end of a job, lost ends or a hang', 'warn'],
  ['duplicate', 'Sent twice', 'exact repeats, dropped: harmless, retries make them', null],
  ['conflict', 'Sent twice, differing', 'the one received last counts', 'warn'],
  ['late', 'Late', 'came after their part of the job had been analysed; analysed again', null],
];

/** Mounts the view; see main.js for what views are. */
export function mount(host, context, start) {
  const verdict = h('div', { class: 'stack', 'data-test': 'quality', id: 'quality' });
  host.append(h('h1', {}, 'How good is the data?'), verdict);
  const draw = () => load(verdict, async () => {
    const { events, rejects, unmatched, conflicts, ranks, dropped, partial, truncated, world_size: world, joins } = await context.job.summary();
    return { events, rejects, unmatched, conflicts, ranks, dropped, partial: partial ?? [], truncated, world, joins: joins ?? {}, ...(await more(context)) };
  }, tell, { what: 'the data quality' });
  draw(start);
  return { update: () => {}, refresh: draw };
}

/** What only the service's own page of data quality knows, where it has one. */
async function more({ api, state }) {
  const { job, attempt } = state();
  try {
    return { per_rank: (await api.get(api.jobPath(job, 'quality', { attempt }))).ranks ?? [] };
  } catch (fault) {
    if (fault.status === 404) return { per_rank: [] };
    throw fault;
  }
}

function tell(value) {
  const { events, rejects, unmatched, conflicts, ranks, dropped, partial, truncated, world, joins, per_rank: perRank } = value;
  const refused = rejects.reduce((sum, row) => sum + row.count, 0);
  const lost = Object.values(dropped).reduce((a, b) => a + b, 0);
  const single = Object.values(unmatched).reduce((a, b) => a + b, 0);
  const faults = [
    ranks.missing_count > 0 && `${plural(ranks.missing_count, 'rank')} of ${count(world)} sent nothing`,
    refused > 0 && `${plural(refused, 'event')} refused`,
    lost > 0 && `${plural(lost, 'event')} left out of the answers`,
    single > 0 && `${plural(single, 'operation')} without the other side`,
    partial.length > 0 && `${plural(partial.length, 'damaged file')} set aside`,
    truncated && 'answers were cut at a limit',
  ].filter(Boolean);
  return [
    faults.length === 0
      ? h('p', { class: 'notice good', 'data-test': 'quality-sentence' }, `All ${count(world)} ranks reported, and everything they sent is in the answers.`)
      : h('p', { class: 'notice warn', 'data-test': 'quality-sentence' }, `${faults.join('; ')}.`),
    panel('Ranks', ranks.missing_count === 0
      ? h('p', {}, `${plural(ranks.seen.length, 'rank')} seen, none missing.`)
      : [h('p', {}, `Missing: ${ranksText(ranks.missing)}${ranks.missing.length < ranks.missing_count ? ` and ${count(ranks.missing_count - ranks.missing.length)} more` : ''}.`),
        h('p', { class: 'quiet' }, 'A rank that sends nothing cannot be blamed nor cleared: check its exporter and its way to this service.')]),
    panel('Events', table(['What', 'Events', 'Meaning'], COUNTS.filter(([key]) => events[key] !== undefined).map(([key, title, meaning, tone]) => [
      title, number(events[key], tone), meaning]))),
    panel('Refused', rejects.length === 0
      ? absent('No event was refused.')
      : [table(['Rank', 'Reason', 'Events'], rejects.slice(0, ROWS_MOST).map((row) => [row.rank === null ? 'unknown' : `rank ${row.rank}`, words(row.reason), number(row.count, 'bad')])), cut(rejects)]),
    panel('Without the other side', single === 0
      ? absent('Every collective and message found its members.')
      : [table(['What', 'Operations'], Object.entries(unmatched).map(([reason, many]) => [words(reason), number(many, 'warn')])),
        h('p', { class: 'quiet' }, 'They are left out of waits and alignment: nobody is blamed for what the other side did not record.')]),
    lost > 0 && panel('Left out of the answers', table(['Reason', 'Events'], Object.entries(dropped).map(([reason, many]) => [words(reason), number(many, 'bad')]))),
    Object.keys(joins).length > 0 && panel('Dumps joined with traces', table(['What', 'Entries'], Object.entries(joins).map(([what, many]) => [words(what), number(many, null)]))),
    partial.length > 0 && panel('Damaged files', h('ul', {}, partial.slice(0, ROWS_MOST).map((text) => h('li', {}, text)))),
    conflicts.length > 0 && panel('Said and seen disagree', h('ul', {}, conflicts.slice(0, ROWS_MOST).map((text) => h('li', {}, text))), cut(conflicts)),
    perRank.length > 0 && panel('By rank', rankTable(perRank)),
  ];
}

/** Rows as the service gives them: the columns are the counts that any rank has. */
function rankTable(rows) {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row).filter((key) => key !== 'rank' && typeof row[key] === 'number')))];
  return [table(['Rank', ...columns.map(words)], rows.slice(0, ROWS_MOST).map((row) => [`rank ${row.rank}`, ...columns.map((key) => number(row[key] ?? 0, null))])), cut(rows)];
}

function panel(title, ...content) {
  return h('section', { class: 'panel' }, h('header', {}, h('h2', {}, title)), content);
}

function table(titles, rows) {
  return h('div', { class: 'scroll' }, h('table', {}, h('thead', {}, h('tr', {}, titles.map((title) => h('th', { scope: 'col' }, title)))),
    h('tbody', {}, rows.map(([first, ...rest]) => h('tr', {}, h('th', { scope: 'row' }, first), rest.map((cell) => h('td', {}, cell)))))));
}

function number(value, tone) {
  return value > 0 && tone ? h('span', { class: `tag ${tone}` }, count(value)) : count(value);
}

function cut(rows) {
  return rows.length > ROWS_MOST ? h('p', { class: 'quiet' }, `The first ${ROWS_MOST} of ${count(rows.length)} are shown.`) : null;
}

function words(name) {
  return name.replaceAll('_', ' ');
}
