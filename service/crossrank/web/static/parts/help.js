// The list of keys, in a dialog. Escape closes it, as every dialog.

import { h } from '../core/dom.js';

const KEYS = [
  [['?'], 'This list'], [['j'], 'All jobs'], [['1', '–', '7'], 'Overview, Timeline, Why, Clocks, Hang, Compare, Data quality'],
  [['['], 'The step before'], [[']'], 'The step after'], [['a'], 'All steps, all ranks'], [['/'], 'Search in the timeline'],
  [['t'], 'Light, dark or system colours'], [['Esc'], 'Close a panel or this list'],
  [['Tab'], 'On to the next link, button or table row'],
];

/** Opens the list; a second call while it is open does nothing. */
export function showHelp() {
  if (document.getElementById('help-dialog')) return;
  const dialog = h('dialog', { id: 'help-dialog', 'data-test': 'help-dialog', 'aria-labelledby': 'help-title' },
    h('div', {}, h('h2', { id: 'help-title' }, 'Keys'),
      h('dl', { class: 'keys' }, KEYS.flatMap(([keys, what]) => [
        h('dt', {}, keys.map((key) => (key === '–' ? '–' : h('kbd', {}, key)))), h('dd', {}, what)])),
      h('p', { class: 'quiet small' }, 'The address of the page holds all you see: copy it to show somebody else the same.'),
      h('p', { class: 'actions' }, h('button', { type: 'button', autofocus: true, on: { click: () => dialog.close() } }, 'Close'))));
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
