// What is different: two ranges of steps, or two jobs. Only what moved beyond its noise band is called different.

import { h } from '../core/dom.js';
import { absent, load } from '../core/load.js';
import { change, duration, percent, plural } from '../core/words.js';
import { openFigure } from '../parts/figure.js';
import { stateLink } from '../parts/shell.js';

const WHAT = { step: 'the step', phase: 'phase', rank: 'rank', group: 'group' };
const ROWS_MOST = 100;

/** Mounts the view; see main.js for what views are. */
export function mount(host, context, start) {
  const { api } = context;
  const form = h('section', { class: 'panel' });
  const verdict = h('section', { class: 'panel', 'data-test': 'compare', id: 'compare' });
  const chart = h('div', { id: 'figure-compare' });
  const chartPanel = h('section', { class: 'panel' }, h('header', {}, h('h2', {}, 'What moved on the critical path'), h('span', { class: 'hint' }, 'per step; a bar within its band is noise')), chart);
  host.append(h('h1', {}, 'Compare'), form, verdict, chartPanel);
  const figure = openFigure(chart, api, { what: 'what moved', height: 420 });

  function draw(state) {
    const { job, attempt, from, to, base, base_from: baseFrom, base_to: baseTo } = state;
    const query = { attempt, from, to, base, base_from: baseFrom, base_to: baseTo };
    const chosen = base !== undefined || baseFrom !== undefined || baseTo !== undefined;
    load(form, async () => {
      const [jobs, summary, found] = await Promise.all([api.get('/v1/jobs'), context.job.summary(), api.get(api.jobPath(job, 'bottlenecks', { attempt }))]);
      return { jobs: jobs.jobs.map((one) => one.job), first: summary.steps.first, last: summary.steps.last, proposals: proposals(summary.steps, found.findings), query, job };
    }, (value) => chooser(context, value), { what: 'what can be compared' });
    chartPanel.hidden = !chosen;
    if (!chosen) {
      load(verdict, async () => null, () => absent('Choose what to compare with.', 'Another range of steps of this job, or another job. Below are ranges that the findings suggest.'));
      return;
    }
    load(verdict, () => api.get(api.jobPath(job, 'compare', query)), (answer) => tell(context, answer), { what: 'the comparison' });
    figure.show(api.jobPath(job, 'figures/compare', query));
  }
  draw(start);
  return { update: draw, refresh: draw, destroy: () => figure.destroy() };
}

/** Ranges worth comparing: the steps of each finding against as many before them, or after. */
function proposals({ first, last }, findings) {
  return findings.filter((finding) => finding.steps.length > 1).slice(0, 3).map((finding) => {
    const [from, to] = [Math.min(...finding.steps), Math.max(...finding.steps)];
    if (from > first) return { from, to, base_from: Math.max(first, from - (to - from + 1)), base_to: from - 1 };
    return to < last ? { from, to, base_from: to + 1, base_to: Math.min(last, to + (to - from + 1)) } : null;
  }).filter(Boolean);
}

function chooser(context, { jobs, first, last, proposals: proposed, query, job }) {
  const field = (name, title) => h('input', { type: 'number', name, id: `compare-${name}`, 'aria-label': title, value: query[name] ?? '', placeholder: name.endsWith('from') ? first ?? '' : last ?? '' });
  return [
    h('form', {
      id: 'compare-form', 'data-test': 'compare-form', class: 'actions',
      on: {
        submit(event) {
          event.preventDefault();
          const given = new FormData(event.target);
          const number = (key) => (given.get(key) === '' ? null : Number(given.get(key)));
          const other = given.get('base');
          context.go({
            from: number('from'), to: number('to'), base_from: number('base_from') ?? (other === job ? first : null), base_to: number('base_to'),
            base: other === job ? null : other,
          });
        },
      },
    },
    h('span', {}, 'Steps'), field('from', 'First step'), h('span', {}, 'to'), field('to', 'Last step'), h('span', {}, `of ${job}, against steps`),
    field('base_from', 'First step of the base'), h('span', {}, 'to'), field('base_to', 'Last step of the base'), h('span', {}, 'of'),
    h('select', { name: 'base', id: 'compare-base', 'aria-label': 'Job to compare with' }, jobs.map((one) => h('option', { value: one, selected: one === (query.base ?? job) }, one))),
    h('button', { type: 'submit', class: 'primary', 'data-test': 'compare-go' }, 'Compare')),
    proposed.length > 0 && h('p', { class: 'actions small' }, h('span', { class: 'quiet' }, 'Or: '), proposed.map((patch) => stateLink(context, { ...patch, base: null },
      { 'data-key': `propose-${patch.from}`, 'data-test': 'compare-proposal' }, `steps ${patch.from}–${patch.to} against ${patch.base_from}–${patch.base_to}`))),
  ];
}

function tell(context, { step, ratio, ratio_band: band, steps_before: before, steps_after: after, parts, links }) {
  if (before === 0 || after === 0) return absent('One side has no complete steps.', 'Widen its range.');
  const moved = parts.filter((part) => part.moved);
  return [
    h('p', { class: 'lead', 'data-test': 'compare-sentence' },
      step.moved
        ? `A step takes ${duration(step.after_ns)} instead of ${duration(step.before_ns)}: ${change(step.change_ns)}${step.band_ns === null ? '' : ` ± ${duration(step.band_ns)}`}${ratio === null ? '' : `, ${ratio >= 1 ? '+' : '−'}${percent(Math.abs(ratio - 1))}${band === null ? '' : ` ± ${percent(band)}`}`}.`
        : `No difference beyond noise: ${duration(step.before_ns)} before, ${duration(step.after_ns)} after${step.band_ns === null ? '; too few steps to tell' : `, and ± ${duration(step.band_ns)} is chance`}.`),
    h('p', { class: 'quiet small' }, `Median of ${plural(after, 'step')} against ${plural(before, 'step')}; bands are 95 %.`),
    links.map((link) => h('p', { class: 'notice warn' }, link.sentence)),
    moved.length === 0
      ? h('p', {}, 'No phase, rank or group moved beyond its noise.')
      : h('div', { class: 'scroll' }, h('table', {},
        h('thead', {}, h('tr', {}, ['What', 'Before', 'After', 'Change', 'Noise'].map((title, index) => h('th', { scope: 'col', class: index ? 'num' : null }, title)))),
        h('tbody', {}, moved.slice(0, ROWS_MOST).map((part) => h('tr', { 'data-test': 'moved' },
          h('th', { scope: 'row' }, part.by === 'rank' ? stateLink(context, { view: 'timeline', rank: Number(part.what), step: context.state().from ?? null, span: null }, {}, `rank ${part.what}`) : `${WHAT[part.by] ?? part.by} ${[...new Set(part.what.split(' '))].join(' ')}`),
          h('td', { class: 'num' }, duration(part.before_ns)), h('td', { class: 'num' }, duration(part.after_ns)),
          h('td', { class: 'num' }, change(part.change_ns)), h('td', { class: 'num' }, part.band_ns === null ? 'unknown' : `± ${duration(part.band_ns)}`)))))),
  ];
}
