// A timeline's columns out of a page, and what stands where in them.

const TYPES = {f8: Float64Array, u4: Uint32Array, u2: Uint16Array, u1: Uint8Array};

async function decoded(island) {
  const bytes = Uint8Array.from(atob(island.gzip), sign => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const raw = await new Response(stream).arrayBuffer(), columns = {};
  let at = 0;
  for (const [name, type, length] of island.columns) {
    columns[name] = new TYPES[type](raw, at, length);
    at += columns[name].byteLength;
  }
  return {...island, gzip: null, ...columns, ...spans(columns, island.p)};
}

// Work and idle time in one form: spans by rank and time, of some kind. Time counts from the first start.
function spans(columns, p) {
  const n = columns.op.length, start = new Float64Array(n), end = new Float64Array(n);
  const origin = columns.edges_s.reduce((least, edge) => Math.min(least, edge), Infinity);
  const apart = (edges, start, end) => {
    for (let i = 0; i < start.length; i++) { start[i] = edges[2 * i] - origin; end[i] = edges[2 * i + 1] - origin; }
  };
  apart(columns.edges_s, start, end);
  const gaps = columns.cause.length, gapStart = new Float64Array(gaps), gapEnd = new Float64Array(gaps);
  apart(columns.idle_s, gapStart, gapEnd);
  const rankOf = new Uint32Array(n);
  for (let rank = 0; rank < p; rank++) rankOf.fill(rank, columns.rank_start[rank], columns.rank_start[rank + 1]);
  return {
    n, origin, rankOf, makespan: end.reduce((most, each) => Math.max(most, each), 0),
    work: {start, end, first: columns.rank_start, kind: columns.op, sums: sums(start, end, columns.op, 4, columns.joined)},
    idle: {start: gapStart, end: gapEnd, first: columns.idle_start, kind: columns.cause,
      sums: sums(gapStart, gapEnd, columns.cause, WORDS.causes.length)},
  };
}

// Seconds of each kind before each span, so that those of any stretch are a difference; a pair shares its slot.
function sums(start, end, kind, kinds, joined = null) {
  const before = Array.from({length: kinds}, () => new Float64Array(start.length + 1));
  for (let i = 0; i < start.length; i++) {
    for (const each of before) each[i + 1] = each[i];
    const shared = joined && (joined[i] || (i > 0 && joined[i - 1]));
    before[kind[i]][i + 1] += (end[i] - start[i]) / (shared ? 2 : 1);
  }
  return before;
}

// The first of a rank's spans from `from` on that ends after a time: spans of a rank stand in the order of time.
function endsAfter(spans, rank, time, from = spans.first[rank]) {
  let low = from, high = spans.first[rank + 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans.end[middle] > time) high = middle; else low = middle + 1;
  }
  return low;
}

// The span under a time, or -1; `second` asks for the second action of a pair.
function spanAt(timeline, spans, rank, time, second = false) {
  const i = endsAfter(spans, rank, time);
  if (i >= spans.first[rank + 1] || spans.start[i] > time) return -1;
  return second && spans === timeline.work && timeline.joined[i] ? i + 1 : i;
}

const nameOf = (timeline, i) => `${timeline.stage[i]}${"FBIW"[timeline.op[i]]}${timeline.micro_batch[i]}`;

// What an action needs: the neighbour stage's result and its own stage's, or -1; distances wrap.
const needs = (timeline, i) => ["remote", "local"].map(name =>
  timeline[name][i] ? (i - timeline[name][i]) | 0 : -1);

function readers(timeline, i) {
  timeline.readers ??= timeline.work.start.reduce((found, _, reader) => {
    for (const source of new Set(needs(timeline, reader))) if (source >= 0) (found[source] ??= []).push(reader);
    return found;
  }, []);
  return timeline.readers[i] ?? [];
}

// The idle intervals between the slot before an action and its own.
function waits(timeline, i) {
  const rank = timeline.rankOf[i], {work, idle} = timeline;
  const first = i > work.first[rank] && timeline.joined[i - 1] ? i - 1 : i;
  const free = first > work.first[rank] ? work.end[first - 1] : 0, found = [];
  for (let k = endsAfter(idle, rank, free); k < idle.first[rank + 1] && idle.end[k] <= work.start[first]; k++) found.push(k);
  return found;
}

function indexOf(timeline, name, rank) {
  const within = [timeline.work.first[rank ?? 0], timeline.work.first[rank === null ? timeline.p : rank + 1]];
  for (let i = within[0]; i < within[1]; i++) if (nameOf(timeline, i) === name) return i;
  return -1;
}
