// The words beside the pointer.

import { h } from '../core/dom.js';
import { duration } from '../core/words.js';

/** A tip on a stage: {element, show(facts, x, y, width), hide}. */
export function openTip() {
  const element = h('div', { class: 'timeline-tip', 'aria-hidden': 'true', hidden: true });
  return {
    element,
    hide: () => { element.hidden = true; },
    show({ name, kind, count, start, end, rank, step, open }, x, y, width) {
      element.hidden = false;
      element.textContent = count > 1 ? `${count} spans, mostly ${kind}`
        : `${name || kind} · rank ${rank}${step === null ? '' : ` · step ${step}`} · ${open ? 'not ended yet' : duration(end - start)}`;
      element.style.setProperty('left', `${Math.min(x + 12, Math.max(0, width - element.offsetWidth - 4))}px`);
      element.style.setProperty('top', `${y + 16}px`);
    },
  };
}
