// Search over the whole job: the list of hits by time, and which one is next from where the user is.

/** openSearch(ask(text) -> {found, total}): {find(text), next(sign, time), said}. */
export function openSearch(ask) {
  let text = '';
  let hits = [];
  let total = 0;
  let place = -1;
  return {
    get text() {
      return text;
    },
    /** Finds a text; '' ends the search. */
    async find(wanted) {
      text = wanted;
      hits = [];
      total = 0;
      place = -1;
      if (wanted === '') return;
      const answer = await ask(wanted);
      if (text !== wanted) return;
      hits = answer.found;
      total = answer.total;
    },
    /** The next hit (sign 1) or the one before (-1) from the last one, first from a time; null without hits. */
    next(sign, time) {
      if (hits.length === 0) return null;
      if (place < 0) {
        const after = hits.findIndex((hit) => hit.start >= time);
        place = sign > 0 ? (after < 0 ? 0 : after) : (after <= 0 ? hits.length : after) - 1;
      } else place = (place + sign + hits.length) % hits.length;
      return hits[place];
    },
    said() {
      if (text === '') return '';
      if (total === 0) return 'no hits';
      const all = `${total.toLocaleString('en')} ${total === 1 ? 'hit' : 'hits'}`;
      return (place < 0 ? all : `${place + 1} of ${all}`) + (total > hits.length ? ` (the first ${hits.length} can be reached)` : '');
    },
  };
}
