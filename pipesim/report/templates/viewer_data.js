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
  return {...island, gzip: null, ...columns, ...spans(columns, island.p, columns.rank_start)};
}

// Work and idle time in one form: spans by rank and time, of some kind. Time counts from the first start.
function spans(columns, p, first) {
  const {edges_s, op, cause, joined} = columns, origin = edges_s.reduce((least, edge) => Math.min(least, edge), Infinity);
  const start = new Float64Array(op.length), end = new Float64Array(op.length), rankOf = new Uint32Array(op.length);
  for (let i = 0; i < op.length; i++) { start[i] = edges_s[2 * i] - origin; end[i] = edges_s[2 * i + 1] - origin; }
  for (let rank = 0; rank < p; rank++) rankOf.fill(rank, first[rank], first[rank + 1]);
  const idle = gaps(columns, p, origin);
  return {
    n: op.length, origin, rankOf, before: idle.before, makespan: end.reduce((most, each) => Math.max(most, each), 0),
    work: {start, end, first, kind: op, sums: sums(start, end, op, 4, joined)},
    idle: {...idle, kind: cause, sums: sums(idle.start, idle.end, cause, WORDS.causes.length)},
  };
}

// Idle intervals from what lies between the slots of each rank; `before` is the action that comes next, -1 after the last.
function gaps({edges_s, rank_start, joined, cause, more, cut_s}, p, origin) {
  const start = new Float64Array(cause.length), end = new Float64Array(cause.length), before = new Int32Array(cause.length);
  const last = edges_s.reduce((most, edge) => Math.max(most, edge), -Infinity), first = new Uint32Array(p + 1);
  let k = 0, cut = 0;
  const split = (from, to, next) => {
    if (to <= from) return;
    do {
      start[k] = from - origin;
      from = more[k] ? cut_s[cut++] : to;
      end[k] = from - origin;
      before[k] = next;
    } while (more[k++]);
  };
  for (let rank = 0; rank < p; rank++) {
    let free = origin;
    for (let i = rank_start[rank]; i < rank_start[rank + 1]; i++) {
      if (i > rank_start[rank] && joined[i - 1]) continue;
      split(free, edges_s[2 * i], i);
      free = edges_s[2 * i + 1];
    }
    split(free, last, -1);
    first[rank + 1] = k;
  }
  return {start, end, before, first};
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
  const rank = timeline.rankOf[i], {work, idle, before} = timeline, found = [];
  const first = i > work.first[rank] && timeline.joined[i - 1] ? i - 1 : i;
  for (let k = endsAfter(idle, rank, work.start[first]) - 1; k >= idle.first[rank] && before[k] === first; k--) found.unshift(k);
  return found;
}

// The action that an idle interval waits for, or -1.
const awaited = (timeline, k) => timeline.reason[k] ? needs(timeline, timeline.before[k] + timeline.reason[k] - 1)[0] : -1;

function indexOf(timeline, name, rank) {
  const within = [timeline.work.first[rank ?? 0], timeline.work.first[rank === null ? timeline.p : rank + 1]];
  for (let i = within[0]; i < within[1]; i++) if (nameOf(timeline, i) === name) return i;
  return -1;
}
