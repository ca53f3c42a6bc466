// Can the times be trusted: offset and drift of every clock, its bounds, its steps, and what the correction repaired.

import { sinceNs } from '../core/api.js';
import { h } from '../core/dom.js';
import { absent, load } from '../core/load.js';
import { change, count, duration, plural, stretches } from '../core/words.js';
import { openFigure } from '../parts/figure.js';

/** Mounts the view; see main.js for what views are. */
export function mount(host, context, start) {
  const facts = h('section', { class: 'panel', id: 'clock-facts', 'data-test': 'clock-facts' });
  const chart = h('div', { id: 'figure-clocks' });
  const table = h('div', { id: 'clock-table' });
  host.append(h('h1', {}, 'Can the times be trusted?'), facts,
    h('section', { class: 'panel' }, h('header', {}, h('h2', {}, 'Offset of each clock over time'), h('span', { class: 'hint' }, 'what has to be added to a clock to get the time of the reference')), chart),
    h('section', { class: 'panel', 'data-test': 'clocks' }, h('header', {}, h('h2', {}, 'Clocks'), h('span', { class: 'hint' }, 'worst bound first')), table));
  const figure = openFigure(chart, context.api, { what: 'the offsets of the clocks', height: 420 });

  function draw({ job, attempt }) {
    const path = context.api.jobPath(job, 'clocks', { attempt });
    const ask = () => context.api.get(path);
    load(facts, async () => {
      const { reference, violations, contradictions, cycles, alignment, domains, dropped_syncs: dropped } = await ask();
      return { reference, violations, contradictions: contradictions.length, cycles, dropped: dropped.length, components: alignment.components, bound: alignment.bound_ns, clocks: domains.length };
    }, trust, { what: 'the clocks' });
    load(table, async () => (await ask()).domains, (domains) => clockTable(domains), { what: 'the clocks' });
    figure.show(context.api.jobPath(job, 'figures/clocks', { attempt }));
  }
  draw(start);
  return { update: () => {}, refresh: draw, destroy: () => figure.destroy() };
}

function trust({ reference, violations, contradictions, cycles, dropped, components, bound, clocks }) {
  if (clocks === 0) return absent('No clock is known yet.', 'Clocks appear with the first events.');
  const fact = (title, ...content) => h('div', {}, h('dt', {}, title), h('dd', {}, content));
  return [
    h('p', { class: 'lead', 'data-test': 'clock-sentence' }, sentence(clocks, components, bound, reference)),
    h('dl', { class: 'facts' },
      fact('Effects before their cause, as stamped', count(violations.raw)),
      fact('after the fit', count(violations.after_fit)),
      fact('after the repair', count(violations.after_repair))),
    contradictions > 0 && h('p', { class: 'notice warn' }, `In ${plural(contradictions, 'stretch', 'stretches')} of time the facts contradict each other, as a stepped clock or a wrong match makes them: bounds are wider there.`),
    (cycles > 0 || dropped > 0) && h('p', { class: 'notice warn' }, `${plural(Math.max(cycles, dropped), 'matched operation')} could not have happened as recorded and ${Math.max(cycles, dropped) === 1 ? 'is' : 'are'} not relied on.`),
  ];
}

function sentence(clocks, components, bound, reference) {
  if (clocks === 1) return `All ranks share one clock (${reference}): there is nothing to align.`;
  if (components > 1) return `${count(clocks)} clocks in ${count(components)} groups that no operation connects. Times of different groups cannot be compared, and are not.`;
  if (bound === null) return `${count(clocks)} clocks, aligned to ${reference}, but nothing bounds how well.`;
  return `${count(clocks)} clocks are aligned to ${reference}; no time is further off than ${duration(bound)}, guaranteed.`;
}

function clockTable(domains) {
  const many = new Set(domains.map((domain) => domain.component)).size > 1;
  const worst = (domain) => Math.max(Math.abs(domain.bound_lo_ns ?? 0), Math.abs(domain.bound_hi_ns ?? 0));
  const head = ['Clock', many && 'Group', 'Ranks', 'Offset', 'Drift', 'Guaranteed within', 'Probable error', 'Clock steps'].filter(Boolean);
  const right = new Set(['Offset', 'Drift', 'Guaranteed within', 'Probable error']);
  return h('div', { class: 'scroll' }, h('table', {},
    h('thead', {}, h('tr', {}, head.map((title) => h('th', { scope: 'col', class: right.has(title) ? 'num' : null }, title)))),
    h('tbody', {}, domains.toSorted((a, b) => worst(b) - worst(a)).map((domain) => h('tr', { 'data-test': 'clock', 'data-clock': domain.clock },
      h('th', { scope: 'row' }, domain.clock),
      many && h('td', {}, String(domain.component)),
      h('td', {}, stretches(domain.ranks)),
      h('td', { class: 'num' }, change(domain.offset_ns)),
      h('td', { class: 'num' }, domain.drift_ppm === null ? 'unknown' : `${domain.drift_ppm.toFixed(2).replace('-', '−')} ppm`),
      h('td', { class: 'num' }, domain.bound_lo_ns === null ? 'no bound' : domain.bound_lo_ns === 0 && domain.bound_hi_ns === 0 ? 'the reference itself' : `−${duration(Math.abs(domain.bound_lo_ns))} … +${duration(domain.bound_hi_ns)}`),
      h('td', { class: 'num' }, `± ${duration(domain.sigma_ns + (domain.bias_floor_ns ?? 0))}`),
      h('td', {}, domain.clock_steps.length === 0 ? 'none' : domain.clock_steps.slice(0, 5).map((step) => h('div', {},
        `${change(step.size_ns)} at +${duration(sinceNs(step.t_ns, domain.knots[0].t_ns))}`)),
      domain.clock_steps.length > 5 && `and ${domain.clock_steps.length - 5} more`))))));
}
