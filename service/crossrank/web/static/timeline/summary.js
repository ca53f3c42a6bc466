// What the picture shows, in words, for those who do not see it.

import { duration, plural } from '../core/words.js';
import { boundText } from './overlay.js';
import { TIMES } from './controls.js';

const NAMED_STEPS = 3;

/** A few sentences on what is seen. */
export function summary(view, tile, aligned) {
  const { first, end } = view.rows();
  const ranks = [...new Set(tile.rows.slice(Math.max(0, first - tile.rowFrom), Math.max(0, end - tile.rowFrom)).map(({ rank }) => rank))];
  const steps = tile.steps.filter((step) => step.end > view.t0 && step.start < view.t1);
  const ranksText = ranks.length === 0 ? 'no ranks' : ranks.length === 1 ? `rank ${ranks[0]}` : `ranks ${ranks[0]} to ${ranks.at(-1)}`;
  const stepsText = steps.length === 0 ? '' : steps.length <= NAMED_STEPS ? `, ${steps.map(({ step }) => `step ${step}`).join(', ')}`
    : `, steps ${steps[0].step} to ${steps.at(-1).step}`;
  const times = TIMES.find(([word]) => word === aligned);
  const path = [...new Set(tile.path.filter((part) => part.end > view.t0 && part.start < view.t1).map(({ rank }) => rank))];
  const worst = tile.bounds.get(Math.max(0, first - tile.rowFrom));
  return [
    `${duration(view.t1 - view.t0)} of ${ranksText} of ${plural(tile.totalRows, 'row')}${stepsText}, in ${times[1].toLowerCase()} times.`,
    path.length && `The critical path runs over ${path.length === 1 ? 'rank' : 'ranks'} ${path.slice(0, 8).join(', ')}${path.length > 8 ? ' and more' : ''}.`,
    tile.arrows.length && `${plural(tile.arrows.length, 'collective')} with ranks that waited for the last to arrive.`,
    worst && `The first row's clock: ${boundText(worst)}.`,
    tile.truncated && 'Some of what was asked for is left out.',
  ].filter(Boolean).join(' ');
}
