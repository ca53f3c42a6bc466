// Does it hang, who holds it up and how is that known; and where ranks did not agree on what to call.

import { sinceNs } from '../core/api.js';
import { h, paint } from '../core/dom.js';
import { absent, load } from '../core/load.js';
import { count, duration, ranksText } from '../core/words.js';
import { stateLink } from '../parts/shell.js';
import { waitGraph } from '../parts/waitgraph.js';

const ROWS_MOST = 200;
const AGAIN_MS = 5000;
const REASONS = {
  not_entered: 'has not entered', host_stopped: 'its host side stopped', device_stopped: 'its device stopped',
  desynchronised: 'called something else', deadlock: 'waits in a circle',
};

/** Mounts the view; see main.js for what views are. */
export function mount(host, context, start) {
  const head = h('div', { class: 'stack' });
  const body = h('div', { class: 'stack' });
  const mismatches = h('div', { 'data-test': 'mismatches' });
  host.append(h('section', { class: 'stack', 'data-test': 'hang', id: 'hang' }, head, body),
    h('section', { class: 'panel' }, h('header', {}, h('h2', {}, 'Calls that do not agree'), h('span', { class: 'hint' }, 'ranks of one group that called different things')), mismatches));
  const ended = new AbortController();
  let next;

  /** The verdict depends on the moment: while it hangs it is asked for again. Only the head has times in it and is written anew. */
  async function judge(state) {
    clearTimeout(next);
    const answer = await context.api.get(context.api.jobPath(state.job, 'hangs', { attempt: state.attempt }), { signal: ended.signal });
    paint(head, inWords(answer), headline);
    if (answer.hung && !ended.signal.aborted) next = setTimeout(() => draw(context.state()), AGAIN_MS);
    return lasting(answer);
  }

  function draw(state) {
    load(body, () => judge(state), (answer) => tell(context, answer), { what: 'whether the job hangs' });
    load(mismatches, async () => (await context.api.get(context.api.jobPath(state.job, 'mismatches', { attempt: state.attempt }))).mismatches,
      (found) => mismatchList(found), { what: 'the calls' });
  }
  draw(start);
  return {
    update: () => {},
    refresh: draw,
    destroy() {
      ended.abort();
      clearTimeout(next);
    },
  };
}

/** What changes with every second. */
function inWords({ hung, sentence, since_ns: since, now_ns: now }) {
  return { hung, sentence, forNs: hung && since !== null ? Math.floor(sinceNs(now, since) / 1e9) * 1e9 : null };
}

/** What stays while nothing comes. */
function lasting({ hung, culprits, suspects, deadlock, waiting, collect, unseen, threshold_ns: threshold }) {
  return { hung, culprits, suspects, deadlock, waiting, collect, unseen, threshold };
}

function headline({ hung, sentence, forNs }) {
  if (!hung) return [h('h1', {}, 'It does not hang'), h('p', { class: 'lead' }, sentence)];
  return [h('h1', {}, forNs === null ? 'It hangs' : `It has been hanging for ${duration(forNs)}`),
    h('p', { class: 'notice bad', 'data-test': 'hang-sentence' }, h('strong', {}, sentence))];
}

function tell(context, answer) {
  const { hung, culprits, waiting, threshold, suspects, deadlock, collect, unseen } = answer;
  const rest = [
    unseen.length > 0 && h('p', { class: 'notice warn' }, `Nothing is known of ${ranksText(unseen)}.`),
    collect && h('p', { class: 'notice' }, h('strong', {}, 'What to collect next'), h('span', {}, collect)),
  ];
  if (!hung) {
    return [h('p', { class: 'quiet' }, `It would count as a hang once something is open for longer than ${duration(threshold)}, which this job's own rhythm gives.`), rest];
  }
  return [
    culprits.length > 0 && h('section', { class: 'panel' }, h('header', {}, h('h2', {}, 'Who holds it up, and the proof')), culpritTable(context, culprits)),
    suspects.length > 0 && h('p', { class: 'notice warn' }, `At least one of ${ranksText(suspects)} holds the job up; the events do not say which.`),
    deadlock.length > 0 && h('p', { class: 'notice bad' }, `These wait for each other in a circle: ${[...deadlock, deadlock[0]].join(' → ')}.`),
    waiting.length > 0 && h('section', { class: 'panel' }, h('header', {}, h('h2', {}, 'Who waits for whom'), h('span', { class: 'hint' }, 'arrows lead to the rank that is waited for')),
      waitGraph({ waiting, culprits, deadlock }), waitingTable(context, waiting)),
    ...rest,
  ];
}

function culpritTable(context, culprits) {
  return h('table', {}, h('thead', {}, h('tr', {}, ['Rank', 'What it did', 'Operation', 'Proof'].map((title) => h('th', { scope: 'col' }, title)))),
    h('tbody', {}, culprits.slice(0, ROWS_MOST).map((one) => h('tr', { 'data-test': 'culprit', 'data-rank': one.rank },
      h('th', { scope: 'row' }, stateLink(context, { view: 'timeline', rank: one.rank, span: null }, {}, `rank ${one.rank}`)),
      h('td', {}, REASONS[one.reason] ?? one.reason.replaceAll('_', ' ')),
      h('td', {}, operation(one)), h('td', {}, one.proof)))));
}

function waitingTable(context, waiting) {
  return h('details', {}, h('summary', {}, `All ${count(waiting.length)} that wait`), h('div', { class: 'scroll' }, h('table', {},
    h('thead', {}, h('tr', {}, ['Rank', 'Waits in', 'Step', 'For'].map((title) => h('th', { scope: 'col' }, title)))),
    h('tbody', {}, waiting.slice(0, ROWS_MOST).map((one) => h('tr', {},
      h('th', { scope: 'row' }, stateLink(context, { view: 'timeline', rank: one.rank, span: null }, {}, `rank ${one.rank}`)),
      h('td', {}, operation(one)), h('td', {}, one.step === null ? '' : String(one.step)),
      h('td', {}, one.waits_for.length ? ranksText(one.waits_for) : 'nobody: all have come'))))),
  waiting.length > ROWS_MOST && h('p', { class: 'quiet' }, `The first ${ROWS_MOST} are shown; the interface (…/hangs) has all.`)));
}

function operation({ op, group, seq }) {
  return [op, group !== null && `in ${group}`, seq !== null && `#${seq}`].filter(Boolean).join(' ') || 'unknown';
}

function mismatchList(found) {
  if (found.length === 0) return absent('All matched calls agree.', 'Operation, size, type and order were the same on all ranks of each group.');
  return h('ul', { class: 'findings' }, found.slice(0, ROWS_MOST).map((one) => h('li', { class: 'finding', 'data-test': 'mismatch' },
    h('div', {}, h('span', { class: 'tag bad' }, one.class)),
    h('div', {}, h('p', { class: 'sentence' }, one.sentence),
      h('p', { class: 'meta' }, h('span', {}, `group ${one.group}, #${one.seq}`), h('span', {}, `the others: ${one.majority}`), one.odd.slice(0, 6).map((odd) => h('span', {}, `rank ${odd.rank}: ${odd.called}`)),
        one.followers > 0 && h('span', {}, `${count(one.followers)} later ones follow from it`))))));
}
