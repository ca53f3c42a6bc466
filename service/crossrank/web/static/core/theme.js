// Light, dark or as the system says: kept per browser, announced to whoever draws with colours (charts, canvas).

const KEY = 'crossrank.theme';
const CHOICES = ['system', 'light', 'dark'];
const listeners = new Set();
const system = matchMedia('(prefers-color-scheme: dark)');
system.addEventListener('change', tell);

function tell() {
  for (const listener of listeners) listener(isDark());
}

/** What the user chose: 'system', 'light' or 'dark'. */
export function chosenTheme() {
  return document.documentElement.dataset.theme ?? 'system';
}

/** Whether the page is dark now. */
export function isDark() {
  const chosen = chosenTheme();
  return chosen === 'dark' || (chosen === 'system' && system.matches);
}

/** Goes to the next choice and returns it. */
export function nextTheme() {
  const next = CHOICES[(CHOICES.indexOf(chosenTheme()) + 1) % CHOICES.length];
  if (next === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    if (next === 'system') localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch { /* not kept then */ }
  tell();
  return next;
}

/** Calls listener(dark) on every change; returns what ends that. */
export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The colour of a CSS custom property in the present theme, for charts and canvases; '' when there is none of that name. */
export function colour(name) {
  if (getComputedStyle(document.documentElement).getPropertyValue(`--${name}`) === '') return '';
  if (!probe.isConnected) {
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = `var(--${name})`; // the property itself holds light-dark(…), which a canvas does not read
  return getComputedStyle(probe).color;
}

const probe = document.createElement('span');
