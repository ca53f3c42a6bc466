// Hands a trace to ui.perfetto.dev, in its own window, when the user says so: the page asks PING until it hears PONG, then posts the
// bytes. Nothing leaves before the click, and the plain download beside it needs no other site.

import { h, replace } from '../core/dom.js';
import { failure } from '../core/load.js';

const ORIGIN = 'https://ui.perfetto.dev';
const PING_EVERY_MS = 150;
const GIVE_UP_MS = 30000;

/** Button, download and what is said about them. address(format) names the trace to take. */
export function perfettoButtons(api, address, title) {
  const said = h('span', { class: 'small quiet', role: 'status', 'data-test': 'perfetto-said' });
  const open = h('button', {
    type: 'button', id: 'perfetto', 'data-test': 'perfetto', title: 'Opens ui.perfetto.dev in a new window and gives it the trace there; the site draws it in your browser',
    on: { click: () => hand() },
  }, 'Open in Perfetto');
  const save = h('button', { type: 'button', id: 'download', 'data-test': 'download-perfetto', on: { click: () => download() } }, 'Download trace');

  async function bytes() {
    replace(said, 'Fetching the trace…');
    const response = await api.open(address('perfetto'));
    const cut = response.headers.get('X-Crossrank-Truncated') === 'true';
    const ranks = response.headers.get('X-Crossrank-Ranks');
    const buffer = await response.arrayBuffer();
    replace(said, `${ranks === null ? '' : `${ranks} ranks, `}${(buffer.byteLength / 1e6).toFixed(1)} MB${cut ? ', cut: look at fewer steps for all of it' : ''}`);
    return buffer;
  }

  async function hand() {
    const other = window.open(`${ORIGIN}/#!/`, 'crossrank-perfetto'); // in the click itself, else it counts as a pop-up
    if (!other) {
      replace(said, 'The browser did not allow a new window. Allow pop-ups of this page, or download the trace and open it there.');
      return;
    }
    open.disabled = true;
    try {
      const [buffer] = await Promise.all([bytes(), answered(other)]);
      other.postMessage({ perfetto: { buffer, title, fileName: 'trace.pftrace' } }, ORIGIN, [buffer]);
    } catch (fault) {
      replace(said, fault.status === undefined ? fault.message : failure(fault, 'the trace'));
    }
    open.disabled = false;
  }

  async function download() {
    save.disabled = true;
    try {
      const link = h('a', { href: URL.createObjectURL(new Blob([await bytes()])), download: 'trace.pftrace' });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    } catch (fault) {
      replace(said, failure(fault, 'the trace'));
    }
    save.disabled = false;
  }
  return [open, save, said];
}

/** Resolves when the other window says PONG. */
function answered(other) {
  return new Promise((resolve, reject) => {
    const ping = setInterval(() => other.postMessage('PING', ORIGIN), PING_EVERY_MS);
    const late = setTimeout(() => end(() => reject(new Error('ui.perfetto.dev does not answer: is there a way to it from this browser? Download the trace instead.'))), GIVE_UP_MS);
    function end(then) {
      clearInterval(ping);
      clearTimeout(late);
      removeEventListener('message', heard);
      then();
    }
    function heard(event) {
      if (event.origin === ORIGIN && event.source === other && event.data === 'PONG') end(resolve);
    }
    addEventListener('message', heard);
  });
}
