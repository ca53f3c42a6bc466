// What would have helped: a few questions worth asking about this step, each asked only when its button is pressed.

import { h, paint, replace } from '../core/dom.js';
import { failure } from '../core/load.js';
import { duration, percent, spanName } from '../core/words.js';

const QUESTIONS_OF_PATH = 3;
const ASKABLE = new Set(['compute', 'data', 'copy', 'checkpoint', 'collective', 'sync']);

/** Draws the questions about `step` into host; parts are the chapters of its critical path. Answers stay while the same is asked. */
export function whatIfPanel(host, context, { job, attempt, step, parts }) {
  paint(host, { job, attempt, step, questions: questions(step, parts) }, (value) => [
    h('header', {}, h('h2', {}, 'What would have helped?'), h('span', { class: 'hint' }, 'the recording replayed with one thing changed; a prediction, with its own error')),
    h('ul', { class: 'questions' }, value.questions.map((question) => item(context, value, question))),
  ]);
}

function questions(step, parts) {
  const by = new Map();
  for (const part of parts) {
    if (!ASKABLE.has(part.kind)) continue;
    const key = JSON.stringify([part.rank, part.kind, part.name]);
    by.set(key, { rank: part.rank, kind: part.kind, name: part.name, ns: (by.get(key)?.ns ?? 0) + part.ns });
  }
  const only = { from: step, to: step };
  const ofPath = [...by.values()].sort((a, b) => b.ns - a.ns).slice(0, QUESTIONS_OF_PATH).map(({ rank, kind, name }) => ({
    id: `rank-${rank}-${kind}-${name}`,
    text: `${spanName({ kind, name })} on rank ${rank} had taken as long as on its peers`,
    change: { rank, kind, ...(name ? { name } : {}), as: 'median', ...only },
  }));
  return [
    ...ofPath,
    { id: 'ideal', text: 'no rank had been slower than its peers', change: { as: 'ideal', ...only } },
    { id: 'network', text: 'all collectives had been twice as fast', change: { kind: 'collective', scale: 0.5, ...only } },
    { id: 'data', text: 'no rank had waited for data', change: { kind: 'data', scale: 0, ...only } },
  ];
}

function item(context, { job, attempt, step }, { id, text, change }) {
  const result = h('div', { class: 'result', role: 'status', 'data-test': 'whatif-result' });
  const button = h('button', { type: 'button', 'data-key': `whatif-${id}`, 'data-test': 'whatif-ask', on: { click: ask } }, '… if ', text, '?');
  async function ask() {
    button.disabled = true;
    replace(result, h('span', { class: 'quiet' }, 'Replaying the job…'));
    try {
      const answer = await context.api.post(context.api.jobPath(job, 'whatif', { attempt }), { changes: [change] });
      replace(result, verdict(answer, step));
    } catch (fault) {
      replace(result, failure(fault, 'the prediction', ask));
    }
    button.disabled = false;
    button.focus({ preventScroll: true });
  }
  return h('li', {}, button, result);
}

function verdict(answer, step) {
  const one = answer.steps.find((row) => row.step === step);
  const error = h('span', { class: 'quiet' }, ` The replay without any change is off by ${percent(Math.abs(answer.replay_error))}.`);
  const saved = one ? Number(one.recorded_ns) - Number(one.predicted_ns) : Number(answer.saving_ns);
  const margin = Math.abs(answer.replay_error) * Number(one?.recorded_ns ?? answer.baseline_ns);
  if (Math.abs(saved) <= Math.max(margin, 1000)) return h('span', {}, 'No difference that the model can tell: something else holds the step up just as long.', error);
  const whole = Number(answer.saving_ns);
  return h('span', {}, one && [h('strong', {}, `Step ${step} would take ${duration(one.predicted_ns)} instead of ${duration(one.recorded_ns)}`),
    `: ${duration(Math.abs(saved))} (${percent(Math.abs(saved) / Number(one.recorded_ns))}) ${saved > 0 ? 'less' : 'more'}.`],
  ` The whole job would be ${duration(Math.abs(whole))} ${whole >= 0 ? 'shorter' : 'longer'}.`, error);
}
