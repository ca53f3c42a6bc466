// Turns the segments of a critical path into sentences: what belongs together is one chapter, and every hop says why it was made.

import { spanName } from '../core/words.js';

const DOES = {
  compute: (name) => `computed ${name}`, data: (name) => `loaded data (${name})`, collective: (name) => `took part in ${name}`,
  send: (name) => `sent (${name})`, recv: (name) => `received (${name})`, copy: (name) => `copied (${name})`,
  checkpoint: (name) => `wrote a checkpoint (${name})`, sync: (name) => `waited for its device (${name})`,
  idle: () => 'recorded nothing', step: () => 'was between spans',
};

/**
 * Chapters in order of time: [{index, rank, kind, name, start, ns, says, hop, limit}]. Neighbouring segments of one rank, kind and name
 * are one; slivers between spans go to the chapter before, so that the sum stays total_ns.
 */
export function chapters(segments, hops) {
  const arrivals = new Map(hops.map((hop) => [`${hop.to_rank} ${hop.at_ns}`, hop]));
  const out = [];
  for (const segment of segments) {
    const last = out.at(-1);
    const ns = Number(segment.on_path_ns);
    const sliver = segment.kind === 'step' || segment.kind === 'idle';
    if (last && last.rank === segment.rank && ((last.kind === segment.kind && last.name === segment.name) || (sliver && ns < last.ns / 20))) {
      last.ns += ns;
      if (!sliver) last.limit = segment.next_limit ?? last.limit;
      continue;
    }
    const hop = last && last.rank !== segment.rank ? hopFor(arrivals, hops, last.rank, segment) : null;
    out.push({
      index: out.length, rank: segment.rank, kind: segment.kind, name: segment.name, start: segment.start_ns, ns,
      limit: segment.next_limit ?? null,
      says: (DOES[segment.kind] ?? ((name) => `spent time in ${name}`))(spanName(segment)), hop,
    });
  }
  return out;
}

function hopFor(arrivals, hops, fromRank, segment) {
  const hop = arrivals.get(`${segment.rank} ${segment.start_ns}`)
    ?? hops.find((one) => one.to_rank === segment.rank && one.from_rank === fromRank && one.at_ns >= segment.start_ns && one.at_ns <= segment.end_ns);
  if (!hop) return `Then rank ${fromRank} was waited for no longer.`;
  const where = hop.group === null ? 'its group' : hop.group;
  if (hop.edge === 'message') return `Rank ${hop.to_rank} needed what rank ${hop.from_rank} sent${hop.group === null ? '' : ` (${hop.group})`}.`;
  if (hop.edge === 'collective') return `All of ${where} waited for rank ${hop.from_rank}, the last to come.`;
  return `Rank ${hop.to_rank} waited for rank ${hop.from_rank} (${hop.edge.replaceAll('_', ' ')}).`;
}
