// Findings as sentences: what it cost first, what it was, and where to see it.

import { h } from '../core/dom.js';
import { percent, plural, stretches, withError } from '../core/words.js';
import { stateLink } from './shell.js';

const NAMES = {
  straggler: 'slow rank', data_stall: 'slow data', slow_link: 'slow link', hang: 'hang', mismatch: 'mismatched calls',
  exposed_communication: 'exposed communication', clock: 'clock', pause: 'pause',
};
const OWN_VIEW = { hang: 'hang', mismatch: 'hang', clock: 'clocks' };

/** The class of a finding in words. */
export function className(finding) {
  return NAMES[finding.class] ?? finding.class.replaceAll('_', ' ');
}

/** The step a finding is best seen at: of its evidence, else its first; null without steps. */
export function stepOf(finding) {
  for (const address of finding.evidence ?? []) {
    const found = /\/steps\/(-?\d+)\/critical-path/.exec(address);
    if (found) return Number(found[1]);
  }
  return finding.steps[0] ?? null;
}

/** Where a click on a finding leads: the step and rank in the timeline, or the view of its class. */
export function targetOf(finding, step = stepOf(finding)) {
  const rank = finding.ranks[0] ?? null;
  if (OWN_VIEW[finding.class]) return { view: OWN_VIEW[finding.class], rank, step, span: null };
  return { view: step === null ? 'overview' : 'timeline', step, rank, span: null, t0: null, t1: null, r0: null, r1: null };
}

/**
 * The span (RANK:ID) a finding is about: the longest of its rank and step with the cause that /stragglers names. null when there is none.
 */
export async function spanOf(api, job, attempt, finding, step) {
  const rank = finding.ranks[0];
  if (step === null || rank === undefined) return null;
  const { stragglers } = await api.get(api.jobPath(job, 'stragglers', { attempt }));
  const cause = stragglers.find((one) => one.rank === rank && one.steps.includes(step))?.cause;
  if (!cause) return null;
  const { events } = await api.get(api.jobPath(job, 'events', { rank, step, kind: cause.kind, limit: 500, attempt }));
  const named = events.filter((event) => event.name === cause.name && event.end_ns !== null);
  const longest = named.sort((a, b) => Number(BigInt(b.end_ns) - BigInt(b.start_ns) - BigInt(a.end_ns) + BigInt(a.start_ns)))[0];
  return longest ? `${rank}:${longest.span_id}` : null;
}

/** Moves to a finding: at once to its step and rank, then on to its span. */
export async function openFinding(context, finding, { step = stepOf(finding), job = context.state().job } = {}) {
  const target = targetOf(finding, step);
  context.go({ ...target, job });
  if (target.view !== 'timeline') return;
  const { attempt } = context.state();
  const span = await spanOf(context.api, job, attempt, finding, step).catch(() => null);
  const now = context.state();
  if (span && now.job === job && now.view === 'timeline' && now.step === target.step && now.rank === target.rank && !now.span) {
    context.go({ span }, { replace: true });
  }
}

/** A list of findings. */
export function findingList(context, findings) {
  return h('ol', { class: 'findings', 'data-test': 'findings' }, findings.map((finding, index) => findingItem(context, finding, index)));
}

function findingItem(context, finding, index) {
  const step = stepOf(finding);
  const title = stateLink({ href: context.href, go: () => openFinding(context, finding) }, targetOf(finding), {
    class: 'sentence', id: `finding-${index}`, 'data-test': 'finding', 'data-class': finding.class,
    'data-rank': finding.ranks[0] ?? null, 'data-step': step,
  }, finding.sentence);
  return h('li', { class: 'finding' },
    h('div', { class: 'cost' }, withError(finding.cost_ns, finding.cost_error_ns), h('small', {}, `${percent(finding.share)} of the time looked at`)),
    h('div', {}, title, h('div', { class: 'meta' },
      h('span', { class: 'tag' }, className(finding)),
      finding.steps.length > 0 && h('span', {}, `${finding.steps.length === 1 ? 'step' : 'steps'} ${stretches(finding.steps)}`),
      finding.group !== null && h('span', {}, `group ${finding.group}`),
      h('span', {}, sureness(finding.confidence)))),
    h('div', { class: 'actions' },
      step !== null && stateLink(context, { view: 'why', step, rank: finding.ranks[0] ?? null, span: null }, { class: 'button', 'data-test': 'finding-why', 'data-key': `why-${index}` }, `Why is step ${step} slow?`),
      finding.steps.length > 1 && stateLink(context, { from: Math.min(...finding.steps), to: Math.max(...finding.steps) }, { class: 'button', 'data-test': 'finding-range', 'data-key': `range-${index}` }, plural(finding.steps.length, 'step'))));
}

function sureness(confidence) {
  if (confidence >= 0.995) return 'as good as certain';
  if (confidence >= 0.9) return `sure to ${percent(confidence)}`;
  return `unsure (${percent(confidence)})`;
}
