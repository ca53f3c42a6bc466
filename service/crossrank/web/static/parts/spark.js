// A small line without axes: the shape of the last step times, the longest marked.

import { svg } from '../core/dom.js';
import { duration } from '../core/words.js';

const WIDTH = 180;
const HEIGHT = 34;
const PAD = 4;

/** values in ns, oldest first; null values leave a gap. */
export function spark(values, title) {
  const known = values.filter((value) => value !== null).map(Number);
  if (known.length < 2) return null;
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const x = (index) => PAD + (index / (values.length - 1)) * (WIDTH - 2 * PAD);
  const y = (value) => (high === low ? HEIGHT / 2 : HEIGHT - PAD - ((value - low) / (high - low)) * (HEIGHT - 2 * PAD));
  let line = '';
  let pen = 'M';
  values.forEach((value, index) => {
    if (value === null) pen = 'M';
    else {
      line += `${pen}${x(index).toFixed(1)} ${y(Number(value)).toFixed(1)}`;
      pen = 'L';
    }
  });
  const worst = values.findIndex((value) => Number(value) === high);
  const words = `${title}: ${duration(low)} to ${duration(high)}`;
  return svg('svg', { class: 'spark', width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': words },
    svg('title', {}, words), svg('path', { d: line }), high > low && svg('circle', { cx: x(worst), cy: y(high), r: 2.6 }));
}
