// The header: where am I, is it live, the tabs, and the bar that says which steps and rank are looked at.

import { announce, h, paint, replace } from '../core/dom.js';
import { chosenTheme, nextTheme } from '../core/theme.js';
import { count, duration, plural } from '../core/words.js';
import { showHelp } from './help.js';

const TABS = [
  ['overview', 'Overview'], ['timeline', 'Timeline'], ['why', 'Why is it slow'], ['clocks', 'Clocks'],
  ['hang', 'Hang'], ['compare', 'Compare'], ['quality', 'Data quality'],
];
const THEMES = { system: '◐ System', light: '☀ Light', dark: '☾ Dark' };
const LIVE = { live: 'following', waiting: 'reconnecting…', absent: 'not following' };

/** Draws the header into host: {update(state), live(word), titleOf(view)}. */
export function openShell(host, { job, href, go, state }) {
  const crumb = h('div', { class: 'crumb', hidden: true });
  const follow = h('span', { class: 'pill', id: 'live-state', 'data-test': 'live-state', title: 'Whether this page follows the service' });
  const theme = h('button', {
    type: 'button', class: 'tool', id: 'theme', 'data-test': 'theme', title: 'Colours: system, light or dark',
    on: { click: () => { theme.textContent = THEMES[nextTheme()]; } },
  }, THEMES[chosenTheme()]);
  const tabs = h('nav', { class: 'tabs', 'aria-label': 'Views', hidden: true });
  const context = h('div', { class: 'context', hidden: true, id: 'context', 'aria-label': 'What is shown' });
  const brand = link('/', { class: 'brand' }, h('img', { src: '/web/icon.svg', alt: '' }), 'crossrank');
  brand.addEventListener('click', (event) => move(event, () => go({ job: null })));
  replace(host,
    h('div', { class: 'bar' }, brand, crumb, h('span', { class: 'push' }), follow, theme,
      h('button', { type: 'button', class: 'tool', id: 'help', 'data-test': 'help', 'aria-keyshortcuts': '?', on: { click: showHelp } }, '? Keys')),
    tabs, context);
  let summary = null;

  function update(now) {
    const inJob = now.job !== undefined;
    tabs.hidden = context.hidden = crumb.hidden = !inJob;
    if (!inJob) return;
    paint(crumb, [now.job, now.attempt, summary?.attempts], () => [h('span', { class: 'job-name', title: now.job }, now.job), attemptPicker(now)]);
    paint(tabs, [now, hangs()], () => TABS.map(([view, title]) => tab(view, title, now)));
    drawContext(now);
  }

  function tab(view, title, now) {
    const patch = { view };
    return stateLink({ href, go }, patch, {
      id: `tab-${view}`, 'data-test': `tab-${view}`, 'aria-current': now.view === view ? 'page' : null,
    }, title, view === 'hang' && hangs() && h('span', { class: 'dot', title: 'It hangs' }, h('span', { class: 'visually-hidden' }, ' (it hangs)')));
  }

  const hangs = () => summary?.findings.some((finding) => finding.class === 'hang') ?? false;

  function attemptPicker(now) {
    if (!summary || summary.attempts.length < 2) return null;
    return h('label', {}, 'attempt ', h('select', {
      id: 'attempt', on: { change: (event) => go({ attempt: Number(event.target.value), step: null, span: null, from: null, to: null }) },
    }, summary.attempts.map((one) => h('option', { value: one, selected: one === summary.attempt }, String(one)))));
  }

  function drawContext(now) {
    const steps = summary?.steps ?? null;
    paint(context, [now.from, now.to, now.rank, steps?.first, steps?.last, completeness(summary)], () => [
      rangeForm(now, steps),
      now.rank !== undefined && h('span', { class: 'chip', 'data-test': 'rank-chip' }, `rank ${now.rank}`,
        h('button', { type: 'button', title: 'Look at all ranks', 'aria-label': `Stop looking at rank ${now.rank}`, on: { click: () => go({ rank: null, span: null }) } }, '×')),
      h('span', { class: 'push', 'data-test': 'completeness' }, completeness(summary)),
    ]);
  }

  function rangeForm(now, steps) {
    const field = (key, word, fallback) => h('label', {}, `${word} `, h('input', {
      type: 'number', id: `range-${key}`, name: key, value: now[key] ?? '', placeholder: fallback ?? '', min: steps?.first, max: steps?.last,
    }));
    return h('form', {
      id: 'range', 'data-test': 'range', 'aria-label': 'Steps looked at',
      on: {
        submit(event) {
          event.preventDefault();
          const given = new FormData(event.target);
          const number = (key) => (given.get(key) === '' ? null : Number(given.get(key)));
          const [from, to] = [number('from'), number('to')];
          go(from !== null && to !== null && to < from ? { from: to, to: from } : { from, to });
        },
      },
    }, field('from', 'Steps', steps?.first), field('to', 'to', steps?.last), h('button', { type: 'submit' }, 'Show'),
    (now.from !== undefined || now.to !== undefined)
      && h('button', { type: 'button', id: 'range-clear', 'data-test': 'range-clear', on: { click: () => go({ from: null, to: null }) } }, 'All steps'));
  }

  job.onChange((answer) => {
    summary = answer;
    update(state());
  });
  return {
    update,
    titleOf: (view) => TABS.find(([id]) => id === view)?.[1] ?? view,
    live(word) {
      if (follow.textContent === LIVE[word]) return;
      follow.className = `pill ${word}`;
      follow.textContent = LIVE[word];
      if (word === 'waiting') announce('The service does not answer; reconnecting.');
    },
  };
}

function completeness(summary) {
  if (!summary) return '';
  const { seen, missing_count: missing } = summary.ranks;
  const bound = summary.alignment.bound_ns;
  const clocks = summary.alignment.components > 1
    ? `${count(summary.alignment.components)} groups of clocks that nothing connects`
    : bound === null ? 'clocks not aligned yet' : `clocks within ${duration(bound)}`;
  return [plural(seen.length, 'rank'), missing > 0 && `${count(missing)} missing`, `${plural(summary.steps.count, 'step')}`, clocks]
    .filter(Boolean).join(' · ');
}

/** A plain link inside the page: opens as a link when the user wants another tab, moves the state otherwise. */
export function stateLink({ href, go }, patch, attrs, ...children) {
  return link(href(patch), { ...attrs, on: { ...attrs.on, click: (event) => move(event, () => go(patch)) } }, ...children);
}

function link(address, attrs, ...children) {
  return h('a', { href: address, ...attrs }, ...children);
}

function move(event, go) {
  if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go();
}
