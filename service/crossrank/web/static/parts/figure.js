// One chart: asks the service for its description (the same one the notebook draws) and lets plotly draw it, loaded on first use.

import { h } from '../core/dom.js';
import { failure } from '../core/load.js';
import { isDark, onTheme } from '../core/theme.js';

// Style sheets the library would add inline, which the content policy refuses. It leaves out those whose element exists already:
// the first are in css/charts.css, the second belong to maps, which no chart of ours is.
const OWN_STYLES = ['plotly.js-style-global', '9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53'];
const CLEAR = 'rgba(0,0,0,0)'; // the panel behind shows through
let library = null;

// The library also sets a few style attributes of shapes, which the policy refuses too; the object model may set the same.
const setAttribute = Element.prototype.setAttribute;
SVGElement.prototype.setAttribute = function set(name, value) {
  if (name === 'style') this.style.cssText = value;
  else setAttribute.call(this, name, value);
};

function plotly() {
  library ??= new Promise((resolve, reject) => {
    if (!document.getElementById(OWN_STYLES[0])) document.head.append(...OWN_STYLES.map((id) => h('meta', { id, class: 'no-inline-styles' })));
    document.head.append(h('script', {
      src: '/web/plotly.min.js',
      on: { load: () => resolve(window.Plotly), error: () => { library = null; reject(new Error('The chart library did not load from this service.')); } },
    }));
  });
  return library;
}

/**
 * A chart in host. show(path) draws the figure at that address, once more only when its answer has changed.
 * onRange(first, last | null): the user brushed a range on the x axis (null: all of it). onPick(point): clicked a point.
 * range: [first, last] keeps the x axis on these. Returns {show, range, destroy}.
 */
export function openFigure(host, api, { what, height = 280, onRange, onPick }) {
  const plot = h('div', { class: 'plot', style: { height: `${height}px` }, role: 'img', 'aria-label': what });
  const message = h('div', { class: 'figure-message' });
  host.append(message, plot);
  host.classList.add('figure');
  let address = null;
  let drawn = null;
  let asked = 0;
  let wanted = null;
  let quiet = false;
  const endTheme = onTheme(() => address && draw());
  const watch = new ResizeObserver(() => drawn && plot.offsetWidth > 0 && window.Plotly.Plots.resize(plot));
  watch.observe(host);

  async function draw() {
    const turn = ++asked;
    const path = `${address}${address.includes('?') ? '&' : '?'}theme=${isDark() ? 'dark' : 'light'}`;
    if (!drawn) message.replaceChildren(h('p', { class: 'loading' }, `Loading ${what}…`));
    try {
      const [library, figure] = await Promise.all([plotly(), api.get(path, { exact: false })]);
      if (turn !== asked) return;
      const text = JSON.stringify(figure);
      message.replaceChildren();
      plot.hidden = false;
      if (text === drawn) return;
      const first = drawn === null;
      drawn = text;
      await library.react(plot, figure.data, { ...figure.layout, height, autosize: true, uirevision: 'keep', paper_bgcolor: CLEAR, plot_bgcolor: CLEAR },
        { displaylogo: false, responsive: false, displayModeBar: false, showTips: false, doubleClick: 'reset', ...figure.config });
      if (first) listen();
      applyRange();
    } catch (fault) {
      if (turn !== asked) return;
      drawn = null;
      plot.hidden = true;
      message.replaceChildren(failure(fault, what, draw));
    }
  }

  function listen() {
    plot.on('plotly_relayout', (changed) => {
      if (quiet || !onRange) return;
      if (changed['xaxis.range[0]'] !== undefined) onRange(changed['xaxis.range[0]'], changed['xaxis.range[1]']);
      else if (changed['xaxis.range']) onRange(...changed['xaxis.range']);
      else if (changed['xaxis.autorange']) onRange(null, null);
    });
    plot.on('plotly_click', (event) => event.points?.[0] && onPick?.(event.points[0]));
  }

  async function applyRange() {
    if (!drawn || !onRange) return;
    const now = plot.layout?.xaxis ?? {};
    const asWanted = wanted ? !now.autorange && now.range?.[0] === wanted[0] && now.range?.[1] === wanted[1] : now.autorange !== false;
    if (asWanted) return;
    quiet = true;
    await window.Plotly.relayout(plot, wanted ? { 'xaxis.range': [...wanted], 'xaxis.autorange': false } : { 'xaxis.autorange': true });
    quiet = false;
  }

  return {
    show(path) {
      address = path;
      return draw();
    },
    range(first, last) {
      wanted = first === null || last === null ? null : [first, last];
      applyRange();
    },
    destroy() {
      endTheme();
      watch.disconnect();
      if (drawn) window.Plotly.purge(plot);
    },
  };
}
