// Colours of the canvas: those of the page (custom properties), read once per theme.

import { colour } from '../core/theme.js';

const SAME = { collective: 'transfer', send: 'transfer', recv: 'transfer', step: 'other', metric: 'other', mark: 'other' };

export class Colours {
  constructor() {
    this.read();
  }

  read() {
    this.kinds = new Map();
    for (const [name, property] of Object.entries({
      background: 'panel', band: 'panel-2', line: 'line', strong: 'line-strong', text: 'text', quiet: 'text-2', faint: 'text-3',
      mark: 'mark', accent: 'accent', soft: 'accent-soft', focus: 'focus', bad: 'bad', warn: 'warn',
    })) this[name] = colour(property);
    const style = getComputedStyle(document.body);
    this.font = (size, weight = '') => `${weight} ${size}px ${style.fontFamily}`.trim();
  }

  kind(name) {
    let found = this.kinds.get(name);
    if (found === undefined) {
      found = colour(`kind-${name}`) || colour(`kind-${SAME[name] ?? 'other'}`) || this.faint;
      this.kinds.set(name, found);
    }
    return found;
  }
}
