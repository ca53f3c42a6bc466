// One answer of the service as arrays that can be drawn and searched: spans grouped by row, in order of start.

const NO_STEP = null;

/** Columns of an answer -> a tile. need: what was asked for, {from, to, level, rowFrom, mode}. */
export function decode(answer, need) {
  const { spans } = answer;
  const count = spans.row.length;
  const ptr = new Uint32Array(answer.rows.length + 1);
  for (let i = 0; i < count; i += 1) ptr[spans.row[i] + 1] += 1;
  for (let r = 0; r < answer.rows.length; r += 1) ptr[r + 1] += ptr[r];
  const order = orderByRow(spans, ptr);
  const take = (Type, column) => Type.from(order, (i) => column[i]);
  const flag = (column) => (column ? take(Uint8Array, column) : null);
  return {
    need,
    base: BigInt(answer.base_ns),
    rowFrom: answer.row_from ?? 0,
    rows: answer.rows,
    totalRows: answer.total_rows ?? answer.rows.length,
    kinds: answer.kinds,
    names: answer.names,
    count,
    ptr,
    start: take(Float64Array, spans.start),
    end: take(Float64Array, spans.end),
    depth: take(Uint8Array, spans.depth),
    kind: take(Uint8Array, spans.kind),
    name: take(Int32Array, spans.name),
    merged: take(Uint32Array, spans.count),
    open: flag(spans.open),
    hit: flag(spans.hit),
    step: Array.from(order, (i) => spans.step?.[i] ?? NO_STEP),
    id: Array.from(order, (i) => spans.id?.[i] ?? null),
    arrows: answer.arrows ?? [],
    path: answer.path ?? [],
    steps: answer.steps ?? [],
    bounds: new Map((answer.bounds ?? []).map((b) => [b.row, b])),
    hits: answer.hits ?? null,
    truncated: answer.truncated === true,
    endNs: answer.end_ns,
    located: answer.located_row ?? null,
  };
}

function orderByRow(spans, ptr) {
  const next = ptr.slice();
  const order = new Uint32Array(spans.row.length);
  for (let i = 0; i < order.length; i += 1) order[next[spans.row[i]]++] = i;
  for (let r = 0; r + 1 < ptr.length; r += 1) {
    const part = order.subarray(ptr[r], ptr[r + 1]);
    for (let k = 1; k < part.length; k += 1) {
      if (spans.start[part[k]] < spans.start[part[k - 1]]) {
        part.sort((a, b) => spans.start[a] - spans.start[b]);
        break;
      }
    }
  }
  return order;
}

/** The tile's row (counted from its first) of a row of the whole picture, or null. */
export function localRow(tile, row) {
  const local = row - tile.rowFrom;
  return local >= 0 && local < tile.rows.length ? local : null;
}

/** The first span of a local row that starts at or after a time: an index within [ptr[r], ptr[r + 1]]. */
export function firstFrom(tile, local, time) {
  let low = tile.ptr[local];
  let high = tile.ptr[local + 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tile.start[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The deepest span of a local row at a time (or within slack ns of it), optionally of one depth; null when there is none. */
export function spanAt(tile, local, time, slack, depth = null) {
  let best = null;
  let distance = Infinity;
  for (let i = firstFrom(tile, local, time + slack) - 1; i >= tile.ptr[local]; i -= 1) {
    if (depth !== null && tile.depth[i] !== depth) continue;
    const off = Math.max(tile.start[i] - time, time - tile.end[i], 0);
    if (off <= slack && (off < distance || (off === distance && tile.depth[i] > tile.depth[best]))) {
      best = i;
      distance = off;
    }
  }
  return best;
}

/** The local row of a span index. */
export function rowOf(tile, index) {
  let low = 0;
  let high = tile.rows.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (tile.ptr[middle] <= index) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** `rank:id` of a span, null for several drawn as one. */
export function refOf(tile, index) {
  return tile.id[index] === null ? null : `${tile.rows[rowOf(tile, index)].rank}:${tile.id[index]}`;
}

/** The index of a `rank:id` in a tile, or null. */
export function find(tile, ref) {
  const [rank, id] = ref.split(':');
  const index = tile.id.indexOf(id);
  for (let i = index; i !== -1; i = tile.id.indexOf(id, i + 1)) {
    if (String(tile.rows[rowOf(tile, i)].rank) === rank) return i;
  }
  return null;
}

/** What is known of a span without asking: {row, start, end, kind, name, count, step, ref, depth, rank, lane, open}. */
export function facts(tile, index) {
  const local = rowOf(tile, index);
  return {
    row: tile.rowFrom + local,
    rank: tile.rows[local].rank,
    lane: tile.rows[local].lane,
    depth: tile.depth[index],
    start: tile.start[index],
    end: tile.end[index],
    kind: tile.kinds[tile.kind[index]],
    name: tile.names[tile.name[index]] ?? '',
    count: tile.merged[index],
    step: tile.step[index],
    ref: refOf(tile, index),
    open: tile.open?.[index] === 1,
  };
}
