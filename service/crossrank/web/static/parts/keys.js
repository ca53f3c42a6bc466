// Keys of the whole page. None acts while something is typed, where a part of the page has used it already, or with a modifier: those belong to the browser.

import { VIEWS } from '../core/state.js';
import { showHelp } from './help.js';

/** Listens for keys; context as views get it. */
export function openKeys({ state, go, job }) {
  addEventListener('keydown', async (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest?.('input, select, textarea, dialog') && event.key !== 'Escape') return;
    const now = state();
    if (event.key === '?') showHelp();
    else if (event.key === 't') document.getElementById('theme').click();
    else if (event.key === 'j') go({ job: null });
    else if (now.job === undefined) return;
    else if (/^[1-7]$/.test(event.key)) go({ view: VIEWS[Number(event.key) - 1] });
    else if (event.key === '[' || event.key === ']') await otherStep(event.key === ']' ? 1 : -1);
    else if (event.key === 'a') go({ from: null, to: null, rank: null, span: null, step: null });
    else if (event.key === '/') {
      if (now.view !== 'timeline') go({ view: 'timeline' });
      requestAnimationFrame(() => document.getElementById('timeline-search')?.focus());
    } else if (event.key === 'Escape' && now.span !== undefined) go({ span: null });
    else return;
    if (event.key !== 'Escape') event.preventDefault();
  });

  async function otherStep(by) {
    const { steps } = (await job.summary().catch(() => null)) ?? {};
    if (!steps || steps.first === null) return;
    const now = state();
    const step = now.step === undefined ? (now.from ?? steps.first) : now.step + by;
    if (step >= steps.first && step <= steps.last) go({ step, span: null, t0: null, t1: null });
  }
}
