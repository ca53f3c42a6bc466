// Asking and showing: every part of a view says that it waits, what went wrong and what to do, or shows its answer.

import { forget, h, paint, replace } from './dom.js';

/**
 * Shows what `ask()` (a promise) resolves to with build(answer) inside host. The earlier content stays while a newer answer is on
 * its way, and when the new one is the same; only the first wait shows words. Of overlapping loads of one host the last counts.
 */
export async function load(host, ask, build, { what = 'this' } = {}) {
  const turn = (turns.get(host) ?? 0) + 1;
  turns.set(host, turn);
  host.setAttribute('aria-busy', 'true');
  const waiting = host.childNodes.length === 0 && setTimeout(() => {
    if (host.childNodes.length === 0) replace(host, h('p', { class: 'loading' }, `Loading ${what}…`));
  }, 150);
  try {
    const answer = await ask();
    if (turns.get(host) === turn) paint(host, answer, build);
    return answer;
  } catch (fault) {
    if (fault.name === 'AbortError') return null; // the view has been left
    if (turns.get(host) === turn) {
      forget(host);
      replace(host, failure(fault, what, () => load(host, ask, build, { what })));
    }
    return null;
  } finally {
    clearTimeout(waiting);
    if (turns.get(host) === turn) host.removeAttribute('aria-busy');
  }
}

const turns = new WeakMap();

/** What went wrong and what to do, with a button that tries again. */
export function failure(fault, what, retry) {
  console.assert(fault.status !== undefined, fault); // not a refusal: a mistake of the page, with its stack
  return h('div', { class: 'notice bad', role: 'alert', 'data-test': 'failure' },
    h('p', {}, h('strong', {}, `Cannot show ${what}. `), fault.message),
    h('p', {}, advice(fault)),
    retry && h('button', { type: 'button', on: { click: retry } }, 'Try again'));
}

function advice(fault) {
  if (fault.status === 0) return 'Is the service running, and is this machine connected to it? The page goes on by itself once it answers.';
  if (fault.status === 403) return 'Your token does not cover this. Ask whoever runs the service for one with the scope read for this job.';
  if (fault.status === 404) return 'It may have been deleted or never sent. The list of jobs shows what there is.';
  if (fault.status === 503) return 'The service has too much to do or is just starting. Try again in a few seconds.';
  if (fault.status === 400 || fault.status === 422) return 'The address asks for something that does not exist. Clear the range, or start from the list of jobs.';
  if (fault.status === undefined) return 'This is a mistake of the page itself. Loading it again may help; the browser console has the details.';
  return 'The log of the service has the details.';
}

/** Says plainly that a job has no data of a kind, and what would bring it. */
export function absent(title, remedy) {
  return h('div', { class: 'empty', 'data-test': 'absent' }, h('p', { class: 'empty-title' }, title), remedy && h('p', {}, remedy));
}
