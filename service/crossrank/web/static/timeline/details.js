// The panel beside the picture: everything that is known of one span, what had to happen before it, and who waited for it.
// All of it is text nodes; names and attributes may hold anything.

import { h, replace } from '../core/dom.js';
import { failure } from '../core/load.js';
import { clockTime, duration } from '../core/words.js';
import { boundText } from './overlay.js';

const SHOWN_MOST = 12;
const EDGES = { lane: 'before it on the same lane', launch: 'launched it', collective: 'the last to arrive', message: 'sent what it received' };
const PLAIN = ['host', 'clock', 'kind', 'step', 'group', 'seq', 'op', 'peer', 'bytes', 'dtype', 'is_async', 'value', 'lamport', 'trace_id', 'parent_span_id'];

/** Builds the panel. acts: {choose(ref), close}. Returns {element, show(facts, bound), load(promise), clear, focus}. */
export function details(acts) {
  const element = h('aside', { class: 'timeline-details', 'aria-label': 'Chosen span', 'data-test': 'span-details', tabindex: '-1', hidden: true });
  const head = h('div');
  const more = h('div');
  element.append(head, more);
  element.addEventListener('keydown', (event) => event.key === 'Escape' && acts.close());
  let turn = 0;
  return {
    element,
    focus: () => element.focus(),
    clear() {
      turn += 1;
      element.hidden = true;
      delete element.dataset.span;
    },
    /** What the picture itself knows; the rest follows by load(). */
    show(facts, bound) {
      element.hidden = false;
      element.dataset.span = facts.ref ?? '';
      replace(head, heading(facts.name || facts.kind, acts), seen(facts, bound));
      replace(more);
    },
    async load(ref, ask) {
      turn += 1;
      const mine = turn;
      element.hidden = false;
      element.dataset.span = ref;
      try {
        const answer = await ask();
        if (mine === turn) fill(answer);
        return answer;
      } catch (fault) {
        if (mine === turn && fault.name !== 'AbortError') replace(more, failure(fault, 'the details of this span', null));
        return null;
      }
    },
  };

  function fill(answer) {
    const { span } = answer;
    replace(head, heading(span.name || span.kind, acts), h('p', {}, `rank ${span.rank}, ${span.lane}`));
    replace(more,
      h('dl', { class: 'timeline-facts' }, times(span, BigInt(answer.base_ns)), PLAIN.filter((key) => span[key] !== null && span[key] !== undefined && span[key] !== '')
        .map((key) => fact(key.replaceAll('_', ' '), String(span[key])))),
      related('What had to happen first', answer.before, span, acts, 'before'),
      related('What waited for it', answer.waited, span, acts, 'waited'),
      attributes(span.attrs));
  }
}

function heading(name, acts) {
  return h('div', { class: 'timeline-heading' }, h('h2', {}, name),
    h('button', { type: 'button', 'aria-label': 'Close', title: 'Close (Esc)', on: { click: acts.close } }, '×'));
}

function seen(facts, bound) {
  const many = facts.count > 1 ? `${facts.count} spans too short to draw one by one; zoom in to see each` : null;
  return [
    h('p', {}, `rank ${facts.rank}, ${facts.lane}${facts.step === null ? '' : `, step ${facts.step}`}`),
    many && h('p', { class: 'quiet' }, many),
    h('dl', { class: 'timeline-facts' }, fact('kind', facts.kind), fact('duration', facts.open ? 'not ended yet' : duration(facts.end - facts.start)),
      fact('start', `${duration(facts.start)} into the job`), bound && fact('clock', boundText(bound))),
  ];
}

function fact(name, value) {
  return [h('dt', {}, name), h('dd', {}, value)];
}

/** Times are offsets from the job's base; the stamps in full are put together as BigInt. */
function times(span, base) {
  const moved = span.start - span.raw_start;
  const sure = span.bound_lo_ns === null || span.bound_lo_ns === undefined ? null : { lo: span.bound_lo_ns, hi: span.bound_hi_ns };
  const bound = sure === null ? 'nothing relates this clock to the others' : boundText(sure);
  const stamps = (from, to) => `${base + BigInt(from)}${to === null || to === undefined ? '' : ` – ${base + BigInt(to)}`}`;
  return [
    fact('duration', span.end === null ? 'not ended yet' : duration(span.end - span.start)),
    fact('start', `${duration(span.start)} into the job, ${clockTime(base + BigInt(span.start))}`),
    fact('clock', bound),
    fact('moved by', `${moved < 0 ? '−' : '+'}${duration(Math.abs(moved))} against its own clock`),
    fact('aligned ns', stamps(span.start, span.end)),
    fact('raw ns', stamps(span.raw_start, span.raw_end)),
  ];
}

function related(title, spans, span, acts, test) {
  if (!spans || spans.length === 0) return [h('h3', {}, title), h('p', { class: 'quiet', 'data-test': test }, 'Nothing that was recorded.')];
  return [h('h3', {}, title), h('ul', { class: 'timeline-related', 'data-test': test }, spans.slice(0, SHOWN_MOST).map((other) => h('li', {},
    h('button', { type: 'button', class: 'link', 'data-span': `${other.rank}:${other.span_id}`, on: { click: () => acts.choose(`${other.rank}:${other.span_id}`) } },
      `${other.name || other.kind}`), ` on rank ${other.rank}${why(other, span)}`))),
  spans.length > SHOWN_MOST && h('p', { class: 'quiet' }, `and ${spans.length - SHOWN_MOST} more`)];
}

function why(other, span) {
  const parts = [];
  if (EDGES[other.edge]) parts.push(EDGES[other.edge]);
  if (other.wait_ns > 0) parts.push(`waited ${duration(other.wait_ns)}${other.bound_ns ? ` ± ${duration(other.bound_ns)}` : ''}`);
  else if (other.edge === 'lane' && other.end !== null && span.start >= other.end) parts.push(`ended ${duration(span.start - other.end)} before`);
  if (other.certain === false) parts.push('the bounds do not tell who came last');
  return parts.length ? `: ${parts.join(', ')}` : '';
}

function attributes(attrs) {
  const entries = Object.entries(attrs ?? {});
  if (entries.length === 0) return null;
  return [h('h3', {}, 'Attributes'), h('dl', { class: 'timeline-facts', 'data-test': 'span-attributes' },
    entries.map(([key, value]) => fact(key, typeof value === 'string' ? value : JSON.stringify(value, (_, item) => (typeof item === 'bigint' ? String(item) : item)))))];
}
