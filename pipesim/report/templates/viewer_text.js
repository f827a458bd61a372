// What the viewer says: numbers with units, an action or an idle interval in words.

const fill = (text, ...parts) => text.replace(/\{(\d)\}/g, (_, number) => parts[number]);
const SECONDS = RULES.units.seconds;

// As the tables do: units of their own for each length.
const duration = (timeline, value) => timeline.unit === "units" ? plain(value) : withUnit(value, SECONDS);

// A moment, as fine as one pixel of the picture.
function moment(timeline, value, step) {
  const [size, sign] = timeline.unit === "units" ? [1, ""] : SECONDS.find(unit => Math.max(value, step) >= unit[0]) ?? SECONDS.at(-1);
  return trimmed(fixed(value / size, Math.min(12, Math.max(0, Math.ceil(-Math.log10(step / size)))))) + sign;
}

const percent = share => withUnit(share, RULES.units.percent);

function because(timeline, k) {
  const words = WORDS.causes[timeline.cause[k]], reason = awaited(timeline, k);
  return reason < 0 ? words : fill(WORDS.for, words, nameOf(timeline, reason), timeline.rankOf[reason]);
}

function aboutAction(timeline, i, step) {
  const {start, end} = timeline.work, found = waits(timeline, i), length = k => timeline.idle.end[k] - timeline.idle.start[k];
  const waited = found.reduce((all, k) => all + length(k), 0);
  return [
    [nameOf(timeline, i), fill(WORDS.rank, timeline.rankOf[i]), fill(WORDS.stage, timeline.stage[i]),
      WORDS.ops[timeline.op[i]], fill(WORDS.micro_batch, timeline.micro_batch[i])].join(" · "),
    fill(WORDS.took, moment(timeline, start[i], step), moment(timeline, end[i], step), duration(timeline, end[i] - start[i])),
    waited > 0 ? fill(WORDS.waited, duration(timeline, waited),
      found.map(k => `${because(timeline, k)} ${duration(timeline, length(k))}`).join("; ")) : WORDS.at_once,
    fill(WORDS.held, timeline.held[i]),
  ].join("\n");
}

function aboutIdle(timeline, rank, k, step) {
  const {start, end} = timeline.idle, next = endsAfter(timeline.work, rank, end[k]);
  const held = next < timeline.work.first[rank + 1] ? timeline.held[next] - (timeline.op[next] === 0) : 0;
  return [
    `${WORDS.idle} · ${fill(WORDS.rank, rank)} · ${because(timeline, k)}`,
    fill(WORDS.took, moment(timeline, start[k], step), moment(timeline, end[k], step), duration(timeline, end[k] - start[k])),
    fill(WORDS.held, held),
  ].join("\n");
}

// The second timeline against the first.
function difference(one, other) {
  const more = other.makespan - one.makespan, sign = one.unit === "units" ? ` ${WORDS.units}` : "";
  const length = seconds => duration(one, seconds) + sign;
  const said = more === 0 ? fill(WORDS.same, "B", "A")
    : fill(more > 0 ? WORDS.longer : WORDS.shorter, "B", length(Math.abs(more)), percent(Math.abs(more) / one.makespan), "A");
  return [fill(WORDS.makespan, "A", length(one.makespan)), fill(WORDS.makespan, "B", length(other.makespan)), said].join(" · ");
}
