// The bar above the picture: which times, what is drawn over them, search, ranks, and the buttons for zoom.

import { h } from '../core/dom.js';

export const TIMES = [['raw', 'Raw', 'as each machine stamped them'], ['fit', 'Fitted', 'offset and drift of each clock taken out'],
  ['repaired', 'Repaired', 'and no effect before its cause']];
const LAYERS = [['path', 'Critical path'], ['arrows', 'Who waited'], ['bounds', 'Bounds']];

/**
 * Builds the bar. acts: {times(word), layer(name, shown), search(text), hit(sign), ranks(text), zoom(factor), all}.
 * Returns {element, set({aligned, q, ranks}), say(text), layers, focusSearch}.
 */
export function controls(acts) {
  const layers = { path: true, arrows: true, bounds: true };
  const times = TIMES.map(([word, label, title]) => h('button', {
    type: 'button', role: 'radio', title: `${label}: ${title}`, 'data-aligned': word, 'aria-checked': 'false', on: { click: () => acts.times(word) },
  }, label));
  const search = h('input', {
    type: 'search', 'aria-label': 'Search spans by name', placeholder: 'Search spans  /', maxlength: '200', 'data-test': 'timeline-search',
    on: { input: () => soon(() => acts.search(search.value.trim())), keydown: (event) => event.key === 'Enter' && acts.hit(event.shiftKey ? -1 : 1) },
  });
  const ranks = h('input', {
    type: 'text', 'aria-label': 'Ranks to show, such as 0-7,12', placeholder: 'All ranks', maxlength: '200', size: '10', 'data-test': 'timeline-ranks',
    on: { change: () => acts.ranks(ranks.value.replaceAll(' ', '')) },
  });
  const said = h('span', { class: 'quiet small', role: 'status', 'data-test': 'timeline-said' });
  let timer = null;
  const soon = (run) => {
    clearTimeout(timer);
    timer = setTimeout(run, 200);
  };
  const button = (label, title, click) => h('button', { type: 'button', title, 'aria-label': title, on: { click } }, label);
  const element = h('div', { class: 'timeline-bar' },
    h('div', { class: 'timeline-group', role: 'radiogroup', 'aria-label': 'Times', on: { keydown: (event) => step(event, times) } }, times),
    h('div', { class: 'timeline-group', role: 'group', 'aria-label': 'Drawn over the spans' }, LAYERS.map(([name, label]) => h('label', {},
      h('input', { type: 'checkbox', props: { checked: true }, 'data-layer': name, on: { change: (event) => {
        layers[name] = event.target.checked;
        acts.layer();
      } } }), label))),
    h('div', { class: 'timeline-group' }, search, button('‹', 'Previous hit', () => acts.hit(-1)), button('›', 'Next hit', () => acts.hit(1)), said),
    h('div', { class: 'timeline-group' }, ranks),
    h('div', { class: 'timeline-group' }, button('−', 'Zoom out (−)', () => acts.zoom(1.5)), button('+', 'Zoom in (+)', () => acts.zoom(1 / 1.5)),
      button('All', 'Show the whole job (0)', acts.all)));
  return {
    element,
    layers,
    say: (text) => { if (said.textContent !== text) said.textContent = text; },
    focusSearch: () => search.focus(),
    set(state) {
      for (const item of times) {
        const chosen = item.dataset.aligned === state.aligned;
        item.setAttribute('aria-checked', String(chosen));
        item.tabIndex = chosen ? 0 : -1;
      }
      if (document.activeElement !== search) search.value = state.q;
      if (document.activeElement !== ranks) ranks.value = state.ranks;
    },
  };
}

function step(event, items) {
  const sign = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!sign) return;
  event.preventDefault();
  const next = items[(items.indexOf(document.activeElement) + sign + items.length) % items.length];
  next.focus();
  next.click();
}
