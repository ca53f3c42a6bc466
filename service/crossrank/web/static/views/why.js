// Why a step took its time: the critical path told as a story, what else could have moved, and what would have helped.

import { sinceNs } from '../core/api.js';
import { h } from '../core/dom.js';
import { absent, load } from '../core/load.js';
import { duration, percent, ranksText, spanName } from '../core/words.js';
import { openFinding, targetOf } from '../parts/findings.js';
import { stateLink } from '../parts/shell.js';
import { chapters } from '../parts/story.js';
import { whatIfPanel } from '../parts/whatif.js';

const SHOWN_FIRST = 14;
const NEAR_MOST = 30;
const KNOWN_MOST = 3;
const SLIVER = 0.005; // of the step: shorter gaps between chapters are not worth a line
const NEARLY = 0.05; // of a chapter: shortening it by less would already change who is waited for

/** Mounts the view; see main.js for what views are. */
export function mount(host, context, start) {
  const heading = h('div');
  const known = h('div', { id: 'step-findings' });
  const story = h('section', { class: 'panel', 'data-test': 'story', id: 'story' });
  const helped = h('section', { class: 'panel', 'data-test': 'whatif', id: 'whatif' });
  host.append(heading, known, story, helped);
  let everything = false;

  async function draw(state) {
    const { api } = context;
    const { job, attempt } = state;
    const loaded = await load(heading, async () => ({ ...(await chosenStep(context, state)) }), (value) => head(context, value), { what: 'the step' });
    if (!loaded || loaded.step === null) return;
    const { step } = loaded;
    load(known, async () => (await api.get(api.jobPath(job, 'bottlenecks', { attempt }))).findings.filter((finding) => finding.steps.includes(step)).slice(0, KNOWN_MOST),
      (found) => found.map((finding, index) => h('p', { class: 'notice', 'data-test': 'step-finding' },
        stateLink({ href: context.href, go: () => openFinding(context, finding, { step }) }, targetOf(finding, step), { 'data-key': `known-${index}` }, finding.sentence))), { what: 'the findings of this step' });
    const path = api.jobPath(job, `steps/${step}/critical-path`, { attempt });
    const answer = await load(story, async () => {
      const found = await api.get(path);
      return { step, total: found.total_ns, base: found.start_ns, segments: found.segments, hops: found.hops, near: found.near ?? [], everything, rank: state.rank };
    }, (value) => tell(context, value, () => { everything = !everything; draw(context.state()); }), { what: `the story of step ${step}` });
    if (answer) whatIfPanel(helped, context, { job, attempt, step, parts: chapters(answer.segments, answer.hops) });
  }

  draw(start);
  return { update: draw, refresh: draw };
}

/** The step of the address; without one the slowest of the range. */
async function chosenStep({ api }, { job, attempt, step, from, to }) {
  const { steps } = await api.get(api.jobPath(job, 'steps', { attempt, from: step ?? from, to: step ?? to }));
  const whole = steps.filter((one) => one.complete);
  const chosen = step === undefined ? whole.toSorted((a, b) => b.duration_ns - a.duration_ns)[0] : steps.find((one) => one.step === step);
  if (!chosen) return { step: null, asked: step ?? null };
  const all = step === undefined ? whole : (await api.get(api.jobPath(job, 'steps', { attempt }))).steps.filter((one) => one.complete);
  const times = all.map((one) => Number(one.duration_ns)).sort((a, b) => a - b);
  return { step: chosen.step, given: step !== undefined, duration: chosen.duration_ns, complete: chosen.complete, median: times[times.length >> 1] ?? null };
}

function head(context, { step, asked, given, duration: took, complete, median }) {
  if (step === null) {
    return absent(asked === null ? 'No step of this job is complete yet.' : `Step ${asked} is not in this job.`,
      asked === null ? 'The story of a step needs all its ranks to have finished it.' : 'Take another from the step times of the overview.');
  }
  const extra = median === null ? 0 : took - median;
  const than = Math.abs(extra) < 0.01 * median ? 'as long as the median step' : `${duration(Math.abs(extra))} ${extra > 0 ? 'longer' : 'shorter'} than the median step (${duration(median)})`;
  return [
    h('h1', { 'data-test': 'why-title' }, `Why step ${step} took ${duration(took)}`),
    h('p', { class: 'actions' }, h('span', {}, median === null ? '' : `That is ${than}.`, given ? '' : ' It is the slowest of the steps looked at.', complete ? '' : ' It is not complete: not all ranks have ended it.'),
      h('span', { class: 'push' }),
      ...[-1, 1].map((by) => stateLink(context, { step: step + by, span: null, t0: null, t1: null }, { class: 'button', 'data-key': `step-${by}`, 'data-test': by < 0 ? 'step-before' : 'step-after' }, by < 0 ? `← Step ${step - 1}` : `Step ${step + 1} →`)),
      stateLink(context, { view: 'timeline', step, span: null, t0: null, t1: null }, { class: 'button', 'data-key': 'to-timeline', 'data-test': 'to-timeline' }, 'See it in the timeline')),
  ];
}

function tell(context, { step, total, base, segments, hops, near, everything, rank }, toggle) {
  const all = chapters(segments, hops);
  if (all.length === 0) return absent('No path through this step is known.', 'Its spans do not connect: see data quality for what did not match.');
  const longest = new Set(all.toSorted((a, b) => b.ns - a.ns).slice(0, SHOWN_FIRST));
  const shown = everything ? all : all.filter((chapter) => longest.has(chapter));
  const hidden = all.filter((chapter) => !shown.includes(chapter));
  return [
    h('header', {}, h('h2', {}, 'The critical path'), h('span', { class: 'hint' },
      `what the step waited for from its start to its end; the parts add up to ${duration(total)}`)),
    h('p', { class: 'lead', 'data-test': 'story-lead' }, lead(all, total)),
    h('ol', { class: 'story' }, passages(all, shown, total).map((passage) => (passage.parts
      ? gapRow(passage, base, total, toggle)
      : chapterRow(context, step, passage, base, total, rank)))),
    hidden.length > 0 || everything ? h('p', { class: 'actions small' },
      h('button', { type: 'button', class: 'link', id: 'story-all', 'data-test': 'story-all', 'aria-expanded': String(everything), on: { click: toggle } },
        everything ? 'Only the longest parts' : `Show all ${all.length} parts`)) : null,
    near.length > 0 && nearTable(context, step, near),
  ];
}

/** Chapters that are shown, in order, with what is left out between them as one passage {start, ns, parts, ranks}. */
function passages(all, shown, total) {
  const chosen = new Set(shown);
  const out = [];
  for (const chapter of all) {
    if (chosen.has(chapter)) out.push(chapter);
    else if (out.at(-1)?.parts) {
      const gap = out.at(-1);
      gap.ns += chapter.ns;
      gap.parts += 1;
      gap.ranks.push(chapter.rank);
      gap.hop = chapter.hop ?? gap.hop;
    } else out.push({ start: chapter.start, ns: chapter.ns, parts: 1, ranks: [chapter.rank], hop: chapter.hop });
  }
  out.forEach((passage, index) => { // how the path came here may stand in the gap before
    if (out[index - 1]?.parts && passage.rank !== out[index - 2]?.rank) passage.came ??= out[index - 1].hop;
  });
  return out.filter((passage) => !passage.parts || passage.ns > SLIVER * total);
}

function row(start, ns, total, colour) {
  return [
    h('span', { class: 'at' }, `+${duration(start)}`),
    h('span', { class: 'track', 'aria-hidden': 'true' }, h('span', { class: 'meter', style: {
      'margin-left': `${(100 * start) / total}%`, width: `${Math.max(0.7, (100 * ns) / total)}%`, background: colour } })),
    h('span', { class: 'took' }, duration(ns)),
  ];
}

function gapRow({ start, ns, parts, ranks }, base, total, toggle) {
  return h('li', { class: 'chapter gap' }, row(sinceNs(start, base), ns, total, 'var(--line-strong)'),
    h('span', { class: 'say' }, h('button', { type: 'button', class: 'link quiet', on: { click: toggle } },
      `${parts === 1 ? 'a shorter part' : `${parts} shorter parts`} on ${ranksText(ranks)}`)));
}

function chapterRow(context, step, chapter, base, total, rank) {
  return h('li', { class: chapter.rank === rank ? 'chapter selected' : 'chapter', 'data-test': 'chapter', 'data-rank': chapter.rank, 'data-kind': chapter.kind },
    row(sinceNs(chapter.start, base), chapter.ns, total, `var(--kind-${kindColour(chapter.kind)})`),
    h('span', { class: 'say' }, (chapter.hop ?? chapter.came) && h('span', { class: 'hop' }, `${chapter.hop ?? chapter.came} `),
      stateLink(context, { view: 'timeline', step, rank: chapter.rank, span: null, t0: null, t1: null, r0: null, r1: null }, { 'data-key': `chapter-${chapter.index}` }, `Rank ${chapter.rank}`),
      ` ${chapter.says}.`, limitText(chapter)));
}

/** One sentence: who holds most of the path, with what. */
function lead(all, total) {
  const by = new Map();
  for (const chapter of all) {
    const key = `${chapter.rank}\u0000${chapter.kind}\u0000${chapter.name}`;
    const entry = by.get(key) ?? { rank: chapter.rank, kind: chapter.kind, name: chapter.name, ns: 0, times: 0 };
    entry.ns += chapter.ns;
    entry.times += 1;
    by.set(key, entry);
  }
  const [first, second] = [...by.values()].sort((a, b) => b.ns - a.ns);
  const share = (entry) => `${spanName(entry)} on rank ${entry.rank} (${duration(entry.ns)}, ${percent(entry.ns / total)}${entry.times > 1 ? `, ${entry.times} times` : ''})`;
  return `Most of the step was ${share(first)}${second ? `, then ${share(second)}` : ''}.`;
}

function kindColour(kind) {
  if (['compute', 'data', 'sync', 'idle', 'copy', 'checkpoint'].includes(kind)) return kind;
  return ['collective', 'send', 'recv'].includes(kind) ? 'transfer' : 'other';
}

/** What would hold the step up next, if this chapter were shorter. */
function limitText({ limit, ns }) {
  if (!limit || limit.after_ns >= ns) return null;
  const what = limit.kind === 'idle' ? 'something that no span names' : spanName(limit);
  return h('span', { class: 'quiet small' }, limit.after_ns < NEARLY * ns
    ? ` Rank ${limit.rank} was as late with ${what}, but for ${duration(limit.after_ns)}.`
    : ` With ${duration(limit.after_ns)} less, ${what} on rank ${limit.rank} would hold the step up instead.`);
}

function nearTable(context, step, near) {
  const rows = near.toSorted((a, b) => a.slack_ns - b.slack_ns).slice(0, NEAR_MOST);
  return h('details', { 'data-test': 'slack' }, h('summary', {}, 'What came close: other work and how much longer it could have been'),
    h('div', { class: 'scroll' }, h('table', {},
      h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'Rank'), h('th', { scope: 'col' }, 'Work'), h('th', { scope: 'col', class: 'num' }, 'Took'), h('th', { scope: 'col', class: 'num' }, 'Slack'))),
      h('tbody', {}, rows.map((row) => h('tr', {},
        h('td', {}, stateLink(context, { view: 'timeline', step, rank: row.rank, span: null, t0: null, t1: null, r0: null, r1: null }, {}, `rank ${row.rank}`)),
        h('td', {}, spanName(row)), h('td', { class: 'num' }, duration(sinceNs(row.end_ns, row.start_ns))), h('td', { class: 'num' }, duration(row.slack_ns))))))));
}
