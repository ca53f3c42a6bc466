// Tells the page what the user did: at once, or, for movements, once the hand rests. What waits travels with what is told at once.

const REST_MS = 250;

/** openTell(onState): {now(patch, replace), soon(patch), stop}. */
export function openTell(onState) {
  let waiting = {};
  let timer = null;
  function now(patch, replace) {
    clearTimeout(timer);
    const all = { ...waiting, ...patch };
    waiting = {};
    onState(all, { replace });
  }
  return {
    now,
    soon(patch) {
      waiting = { ...waiting, ...patch };
      clearTimeout(timer);
      timer = setTimeout(() => now({}, true), REST_MS);
    },
    stop: () => clearTimeout(timer),
  };
}
