// The timeline: everything drawn in time is in timeline/; here are the steps to walk through and the ways out to other tools.

import { h, paint, replace } from '../core/dom.js';
import { failure } from '../core/load.js';
import { perfettoButtons } from '../parts/perfetto.js';
import { stateLink } from '../parts/shell.js';
import { mountTimeline } from '../timeline/index.js';

/** Mounts the view; see main.js for what views are. */
export function mount(host, context, start) {
  const { api, go, job } = context;
  const walk = h('span', { class: 'actions' });
  const element = h('div', { id: 'timeline', 'data-test': 'timeline' });
  const bar = h('div', { class: 'actions timeline-tools' }, walk, h('span', { class: 'push' }), perfettoButtons(api, address, `${start.job} · crossrank`));
  host.append(h('h1', { class: 'visually-hidden' }, `Timeline of ${start.job}`), bar, element);

  /** The trace of the step looked at, or of the range. */
  function address(format) {
    const { job: name, attempt, step, from, to, aligned } = context.state();
    return api.jobPath(name, 'export', { format, from: step ?? from, to: step ?? to, aligned, attempt });
  }

  async function drawWalk(state) {
    const { steps } = (await job.summary().catch(() => null)) ?? {};
    const first = steps?.first ?? null;
    paint(walk, [state.step, state.from, state.to, first, steps?.last], () => {
      if (first === null) return h('span', { class: 'quiet' }, 'No steps are known yet.');
      const to = (step, title, test) => step >= first && step <= steps.last && stateLink(context, { step, span: null, t0: null, t1: null }, { class: 'button', 'data-key': test, 'data-test': test }, title);
      const isWhole = state.from === undefined && state.to === undefined;
      const range = isWhole ? 'The whole job' : `Steps ${state.from ?? first}–${state.to ?? steps.last}`;
      if (state.step === undefined) return [h('span', { class: 'quiet', 'data-test': 'timeline-range' }, range), to(state.from ?? first, `Step ${state.from ?? first} →`, 'step-after')];
      return [to(state.step - 1, `← Step ${state.step - 1}`, 'step-before'), h('strong', { 'data-test': 'timeline-step' }, `Step ${state.step}`), to(state.step + 1, `Step ${state.step + 1} →`, 'step-after'),
        stateLink(context, { view: 'why', span: null }, { class: 'button', 'data-key': 'to-why', 'data-test': 'to-why' }, `Why did step ${state.step} take so long?`),
        h('button', { type: 'button', 'data-key': 'whole-job', 'data-test': 'whole-job', on: { click: () => go({ step: null, t0: null, t1: null }) } }, range)];
    });
  }

  let drawn = null;
  try {
    drawn = mountTimeline(element, { job: start.job, state: start, onState: go, api });
  } catch (fault) {
    replace(element, failure(fault, 'the timeline'));
  }
  drawWalk(start);
  return {
    update(state) {
      drawWalk(state);
      drawn?.update(state);
    },
    refresh(state) {
      drawWalk(state);
      drawn?.update(state, { fresh: true });
    },
    destroy: () => drawn?.destroy(),
  };
}
