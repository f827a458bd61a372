// Pointer, wheel, fingers and keys.

function listen(view) {
  const {canvas} = view, pointers = new Map();
  let moved = 0, pinch = null;
  const timeAt = x => view.t0 + (x - LEFT) / (canvas.clientWidth - LEFT - 4) * (view.t1 - view.t0);
  const place = event => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  const spread = () => { const [a, b] = [...pointers.values()]; return {x: (a[0] + b[0]) / 2, apart: Math.max(20, Math.hypot(a[0] - b[0], a[1] - b[1]))}; };

  canvas.addEventListener("pointerdown", event => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
    if (pointers.size === 1) moved = 0;
    if (pointers.size === 2) pinch = spread();
  });
  canvas.addEventListener("pointermove", event => {
    const now = place(event), before = pointers.get(event.pointerId);
    if (!before) return tip(view, hit(view, now, timeAt), now);
    pointers.set(event.pointerId, now);
    moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
    if (pointers.size === 2) {
      const then = spread();
      zoom(view, pinch.apart / then.apart, timeAt(then.x));
      move(view, (pinch.x - then.x) / (canvas.clientWidth - LEFT - 4));
      pinch = then;
    } else if (moved > 3) {
      tip(view, null);
      move(view, (before[0] - now[0]) / (canvas.clientWidth - LEFT - 4));
    }
  });
  const lift = event => {
    if (pointers.delete(event.pointerId) && moved <= 3 && event.type === "pointerup" && !pointers.size) {
      const found = hit(view, place(event), timeAt);
      choose(view, found && found.i >= 0 ? {panel: found.panel, i: found.i} : null);
      if (found && found.i < 0 && found.k >= 0) view.said.textContent = about(view, found);
    }
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", () => tip(view, null));
  canvas.addEventListener("dblclick", event => zoom(view, 0.25, timeAt(place(event)[0])));
  canvas.addEventListener("wheel", event => {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (!sideways && !event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
    event.preventDefault();
    tip(view, null);
    if (sideways) move(view, (event.deltaX || event.deltaY) / canvas.clientWidth);
    else zoom(view, 2 ** (Math.sign(event.deltaY) * Math.min(1, Math.abs(event.deltaY) / 200)), timeAt(place(event)[0]));
  }, {passive: false});
  canvas.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const does = KEYS[event.key];
    if (does) { event.preventDefault(); does(view); }
  });
}

const KEYS = {
  ArrowLeft: view => move(view, -0.1), ArrowRight: view => move(view, 0.1),
  "+": view => zoom(view, 0.5), "=": view => zoom(view, 0.5), "-": view => zoom(view, 2),
  "0": view => look(view, 0, view.longest), Home: view => look(view, 0, view.longest),
  ",": view => step(view, -1), ".": view => step(view, 1),
  ArrowUp: view => otherRank(view, -1), ArrowDown: view => otherRank(view, 1),
  Enter: view => { const source = view.chosen && needs(view.panels[view.chosen.panel].timeline, view.chosen.i).find(i => i >= 0);
    if (source >= 0) choose(view, {...view.chosen, i: source}, true); },
  Escape: view => { choose(view, null); tip(view, null); },
};

// What lies under a point: panel, rank, and the action `i` or the idle interval `k` there, or -1.
function hit(view, [x, y], timeAt) {
  const panel = view.panels.findIndex(each => y >= each.top && y < each.bottom);
  if (panel < 0 || x < LEFT) return null;
  const {timeline, top, row} = view.panels[panel], rank = Math.floor((y - top) / row), time = timeAt(x);
  return {panel, rank, i: spanAt(timeline, timeline.work, rank, time, (y - top) / row - rank > 0.5), k: spanAt(timeline, timeline.idle, rank, time)};
}

function step(view, by) {
  const {panel, i} = view.chosen ?? {panel: 0, i: -1}, timeline = view.panels[panel].timeline;
  const to = i < 0 ? endsAfter(timeline.work, 0, view.t0) : i + by;
  if (to >= 0 && to < timeline.n && (i < 0 || timeline.rankOf[to] === timeline.rankOf[i])) choose(view, {panel, i: to}, true);
}

// The same moment on the rank above or below; from the last rank of one timeline to the first of the other.
function otherRank(view, by) {
  if (!view.chosen) return step(view, 0);
  let {panel, i} = view.chosen, timeline = view.panels[panel].timeline, rank = timeline.rankOf[i] + by;
  const time = timeline.work.start[i];
  if (rank < 0 || rank >= timeline.p) {
    panel += by;
    if (!view.panels[panel]) return;
    timeline = view.panels[panel].timeline;
    rank = by > 0 ? 0 : timeline.p - 1;
  }
  const {first} = timeline.work, to = Math.min(endsAfter(timeline.work, rank, time), first[rank + 1] - 1);
  if (to >= first[rank]) choose(view, {panel, i: to}, true);
}
