// The whole state of the page is its address: nothing else is remembered, so a link restores what its sender saw.

const WHOLE = new Set(['attempt', 'from', 'to', 'step', 'rank', 'base_from', 'base_to']);
const TEXT = new Set(['job', 'view', 'span', 'aligned', 'q', 'base', 't0', 't1', 'r0', 'r1']);
export const VIEWS = ['overview', 'timeline', 'why', 'clocks', 'hang', 'compare', 'quality'];
const ALIGNED = new Set(['raw', 'fit', 'repaired']);

/** State from a query string. Unknown keys and values that make no sense are left out. */
export function parseState(search) {
  const state = {};
  for (const [key, value] of new URLSearchParams(search)) {
    if (WHOLE.has(key) && /^-?\d{1,15}$/.test(value)) state[key] = Number(value);
    else if (TEXT.has(key) && value !== '' && value.length <= 1024) state[key] = value;
  }
  if (state.job === undefined) return {};
  if (!VIEWS.includes(state.view)) state.view = 'overview';
  if (state.aligned !== undefined && !ALIGNED.has(state.aligned)) delete state.aligned;
  return state;
}

/** The query string of a state, keys in a fixed order. */
export function formatState(state) {
  const query = new URLSearchParams();
  for (const key of ['job', 'view', ...[...WHOLE, ...TEXT].filter((name) => name !== 'job' && name !== 'view')]) {
    if (state[key] !== undefined && state[key] !== null) query.set(key, String(state[key]));
  }
  const text = query.toString();
  return text ? `?${text}` : '';
}

/** state with a patch applied; null or undefined removes a key. Another job starts afresh. */
export function merged(state, patch) {
  const base = patch.job !== undefined && patch.job !== state.job ? {} : state;
  const next = { ...base, ...patch };
  for (const key of Object.keys(next)) if (next[key] === null || next[key] === undefined) delete next[key];
  return next;
}

/** Opens the state of this window: {now, go, href, onChange}. go(patch, {replace}) moves; one entry in the history each. */
export function openState() {
  let current = parseState(location.search);
  const listeners = new Set();
  const tell = () => listeners.forEach((listener) => listener(current));
  addEventListener('popstate', () => {
    current = parseState(location.search);
    tell();
  });
  return {
    now: () => current,
    href: (patch) => `/${formatState(merged(current, patch))}`,
    go(patch, { replace = false } = {}) {
      const next = parseState(formatState(merged(current, patch)));
      const address = `/${formatState(next)}`;
      if (address === `/${formatState(current)}`) return;
      current = next;
      if (replace) history.replaceState(null, '', address);
      else history.pushState(null, '', address);
      tell();
    },
    onChange: (listener) => listeners.add(listener),
  };
}
