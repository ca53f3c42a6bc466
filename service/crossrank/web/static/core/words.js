// Numbers as people read them. Durations are ns in, three significant digits out, with the unit beside them.

const UNITS = [[86400e9, 'days'], [3600e9, 'h'], [60e9, 'min'], [1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];
const WHOLE = new Intl.NumberFormat('en');

/** 1234 -> '1,234'. */
export function count(value) {
  return WHOLE.format(value);
}

/** `3 ranks`, `1 rank`. */
export function plural(value, word, many = `${word}s`) {
  return `${count(value)} ${Number(value) === 1 ? word : many}`;
}

function unitOf(ns) {
  const size = Math.abs(ns);
  return UNITS.find(([unit, name]) => size >= unit * (unit >= 60e9 ? 3 : 1)) ?? UNITS.at(-1);
}

function digits(value) {
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size >= 100) return WHOLE.format(Math.round(value));
  return size < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(size >= 10 ? 3 : 2)));
}

/** 47457208 -> '47.5 ms'. null -> 'unknown'. */
export function duration(ns) {
  if (ns === null || ns === undefined) return 'unknown';
  const value = Number(ns);
  const [unit, name] = unitOf(value);
  return `${digits(value / unit)} ${name}`;
}

/** As duration, with a sign. */
export function change(ns) {
  const value = Number(ns);
  return `${value > 0 ? '+' : value < 0 ? '−' : '±'}${duration(Math.abs(value))}`;
}

/** (379657664, 322819) -> '380 ± 0.32 ms'; (1117e6, 72e4) -> '1.12 s ± 720 µs': in one unit unless that would hide the error; an exact one alone. */
export function withError(ns, errorNs) {
  const [value, error] = [Number(ns), Number(errorNs)];
  const [unit, name] = unitOf(Math.max(Math.abs(value), error));
  if (error === 0) return duration(value);
  if (error < unit / 100) return `${Number((value / unit).toPrecision(3))} ${name} ± ${duration(error)}`;
  return `${digits(value / unit)} ± ${digits(error / unit)} ${name}`;
}

/** 0.0410 -> '4.1 %'. */
export function percent(share) {
  return `${digits(share * 100)} %`;
}

/** [8, 9, 10, 12] -> '8–10, 12', cut after a few stretches. */
export function stretches(numbers, most = 6) {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const runs = [];
  for (const number of sorted) {
    const last = runs.at(-1);
    if (last && number === last[1] + 1) last[1] = number;
    else runs.push([number, number]);
  }
  const shown = runs.slice(0, most).map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`));
  return shown.join(', ') + (runs.length > most ? ` and ${plural(runs.length - most, 'more stretch', 'more stretches')}` : '');
}

/** 'rank 3', 'ranks 3–5'. */
export function ranksText(ranks) {
  return `${ranks.length === 1 ? 'rank' : 'ranks'} ${stretches(ranks)}`;
}

/** A span's name, or what it is when it has none. */
export function spanName(segment) {
  if (segment.kind === 'idle') return 'nothing recorded';
  if (segment.kind === 'step') return 'between spans';
  return segment.name || segment.kind;
}

/** How long ago, roughly. */
export function ago(ns) {
  if (ns < 3e9) return 'just now';
  if (ns < 120e9) return `${Math.round(ns / 1e9)} s ago`;
  if (ns < 7200e9) return `${Math.round(ns / 60e9)} min ago`;
  if (ns < 172800e9) return `${Math.round(ns / 3600e9)} h ago`;
  return `${Math.round(ns / 86400e9)} days ago`;
}

/** A stamp of the local clock of this browser, from ns since the epoch. */
export function clockTime(epochNs) {
  return new Date(Number(BigInt(epochNs) / 1000000n)).toLocaleString('en-GB', { hour12: false });
}
