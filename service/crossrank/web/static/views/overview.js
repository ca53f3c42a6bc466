// The first look at a job: what it lost and to whom, then the charts the answer rests on. A brushed range goes for all of them.

import { h, replace } from '../core/dom.js';
import { absent, load } from '../core/load.js';
import { count, duration, plural } from '../core/words.js';
import { findingList } from '../parts/findings.js';
import { openFigure } from '../parts/figure.js';
import { stateLink } from '../parts/shell.js';

const HEAT_ROWS = 320; // as many rows of pixels as the chart has; a row of cells is one rank or the worst of a few

/** Mounts the view; see main.js for what views are. */
export function mount(host, context, start) {
  const { api, go } = context;
  const facts = h('section', { class: 'panel', id: 'facts', 'data-test': 'facts' });
  const findings = h('div', { id: 'findings' });
  const [steps, heatmap, breakdown] = [['figure-steps', 'steps-chart'], ['figure-heatmap', 'heatmap'], ['figure-breakdown', 'breakdown']].map(([id, test]) => h('div', { id, 'data-test': test }));
  const by = h('span', { class: 'switch', role: 'group', 'aria-label': 'Breakdown by' });
  host.append(
    facts,
    panel('What slowed it down', 'most costly first; a click shows the span', findings),
    panel('Step times', 'drag over steps to look at these only, double click for all; a click explains the step', steps),
    panel('Who delayed which step', 'delay each rank caused, by step; a click shows that rank in that step', heatmap),
    panel('Where the time went', by, breakdown));

  const brush = (first, last) => {
    if (first === null) go({ from: null, to: null });
    else go({ from: Math.ceil(Math.min(first, last)), to: Math.max(Math.ceil(Math.min(first, last)), Math.floor(Math.max(first, last))) });
  };
  const charts = {
    steps: openFigure(steps, api, { what: 'the step times', height: 240, onRange: brush, onPick: (point) => whole(point.x) && go({ view: 'why', step: point.x, span: null }) }),
    heatmap: openFigure(heatmap, api, { what: 'the delays by rank and step', height: 380, onRange: brush, onPick: (point) => pickCell(point) }),
    breakdown: openFigure(breakdown, api, { what: 'the breakdown', height: 280 }),
  };
  let sortedBy = 'step';
  let turns = 0;
  const whole = (value) => Number.isInteger(value);

  function pickCell({ x, y, customdata }) {
    const rank = customdata ?? Number(/\d+/.exec(String(y))?.[0]); // customdata: the one of several ranks that a row stands for
    if (whole(x) && whole(rank)) go({ view: 'timeline', step: x, rank, span: null, t0: null, t1: null, r0: null, r1: null });
  }

  function drawSwitch(state) {
    replace(by, [['step', 'by step'], ['rank', 'by rank']].map(([value, title]) => h('button', {
      type: 'button', 'data-key': `by-${value}`, 'aria-pressed': String(sortedBy === value), 'data-test': `by-${value}`,
      on: { click: () => { sortedBy = value; drawSwitch(state); draw(context.state()); } },
    }, title)));
  }

  function draw(state) {
    const { job, attempt, from, to } = state;
    const ask = (part, query = {}) => api.get(api.jobPath(job, part, { from, to, attempt, ...query }));
    load(facts, async () => brief(await context.job.summary(), await ask('steps')), (value) => factList(context, value), { what: 'the summary' });
    load(findings, async () => (await ask('bottlenecks')).findings,
      (found) => (found.length ? findingList(context, found) : absent('Nothing beyond noise and clock bounds.',
        'No rank, link or phase cost this range more than chance and the clocks allow for.')), { what: 'the findings' });
    charts.steps.show(api.jobPath(job, 'figures/steps', { attempt }));
    // The breakdown of a large job takes the service longest: what says who is slow does not wait behind it.
    const turn = ++turns;
    charts.heatmap.show(api.jobPath(job, 'figures/heatmap', { attempt, rows: HEAT_ROWS * Math.ceil(devicePixelRatio || 1) }))
      .then(() => turn === turns && charts.breakdown.show(api.jobPath(job, 'figures/breakdown', { from, to, by: sortedBy, attempt })));
    const window = from === undefined && to === undefined ? [null, null] : [(from ?? to) - 0.5, (to ?? from) + 0.5];
    charts.steps.range(...window);
    charts.heatmap.range(...window);
  }

  drawSwitch(start);
  draw(start);
  return {
    update: draw,
    refresh: draw,
    destroy: () => {
      turns += 1;
      Object.values(charts).forEach((chart) => chart.destroy());
    },
  };
}

function panel(title, hint, ...content) {
  return h('section', { class: 'panel' }, h('header', {}, h('h2', {}, title), typeof hint === 'string' ? h('span', { class: 'hint' }, hint) : hint), content);
}

/** What the facts are drawn from: nothing that changes without being shown. */
function brief(summary, { steps }) {
  const times = steps.filter((step) => step.complete).map((step) => Number(step.duration_ns)).sort((a, b) => a - b);
  const quantile = (share) => times[Math.min(times.length - 1, Math.floor(share * times.length))] ?? null;
  return {
    median: quantile(0.5), slowest: quantile(1), slowestStep: steps.find((step) => Number(step.duration_ns) === quantile(1))?.step ?? null,
    shown: times.length, open: steps.length - times.length, seen: summary.ranks.seen.length, missing: summary.ranks.missing_count, hosts: summary.hosts.length,
    bound: summary.alignment.bound_ns, components: summary.alignment.components, truncated: summary.truncated,
    rejected: summary.rejects.reduce((sum, row) => sum + Number(row.count ?? row.events ?? 0), 0), unmatched: Object.values(summary.unmatched).reduce((a, b) => a + b, 0),
  };
}

function factList(context, value) {
  const fact = (title, ...content) => h('div', {}, h('dt', {}, title), h('dd', {}, content));
  return [
    h('dl', { class: 'facts' },
      fact('Median step', value.median === null ? 'no complete step yet' : duration(value.median)),
      value.slowest !== null && fact('Slowest step', duration(value.slowest), ' ',
        h('small', {}, stateLink(context, { view: 'why', step: value.slowestStep, span: null }, { id: 'slowest', 'data-test': 'slowest' }, `step ${value.slowestStep}: why?`))),
      fact('Complete steps', count(value.shown), value.open > 0 && h('small', {}, ` and ${count(value.open)} open`)),
      fact('Ranks', count(value.seen), h('small', {}, ` on ${plural(value.hosts, 'host')}`)),
      value.components > 1
        ? fact('Clocks', h('small', {}, `${count(value.components)} groups that nothing connects`))
        : value.bound !== null && fact('Clocks agree within', duration(value.bound))),
    (value.missing > 0 || value.rejected > 0 || value.truncated) && h('p', { class: 'notice warn' }, h('span', {},
      [value.missing > 0 && `${plural(value.missing, 'rank')} sent nothing`, value.rejected > 0 && `${plural(value.rejected, 'event')} refused`, value.truncated && 'not all data is in these answers']
        .filter(Boolean).join('; '), '. ', stateLink(context, { view: 'quality' }, { id: 'to-quality' }, 'See data quality'))),
  ];
}
