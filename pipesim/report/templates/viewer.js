// The viewer: builds its parts beside a page's data, and keeps the place in the address.

const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(key, value);
  made.append(...children);
  return made;
};
const islands = new Map([...document.querySelectorAll("script.pv-data")].map(each => JSON.parse(each.textContent)).map(each => [each.slug, each]));
const known = new Map();
const timelineOf = slug => { if (!known.has(slug)) known.set(slug, decoded(islands.get(slug))); return known.get(slug); };

async function build(root) {
  const view = {root, slugs: [root.dataset.shown, root.dataset.against || ""], t0: 0, t1: 1, longest: 1, chosen: null, panels: [],
    canvas: element("canvas", {tabindex: 0, role: "application"}), tip: element("div", {class: "pv-tip", hidden: ""}),
    said: element("p", {class: "pv-said pv-tool", role: "status"}), differs: element("p", {class: "pv-said pv-tool"}),
    legend: element("div", {class: "pv-tool"})};
  const options = [...islands.values()].map(each => [each.slug, each.title]);
  const select = (at, label, choices) => {
    const made = element("select", {}, ...choices.map(([slug, title]) => element("option", {value: slug}, title)));
    made.onchange = () => { view.slugs[at] = made.value; view.chosen = null; shown(view).then(() => { look(view, 0, view.longest); keep(view); }); };
    return (view[`select${at}`] = made, element("label", {}, `${label} `, made));
  };
  const button = (sign, label, key) => { const made = element("button", {type: "button", "aria-label": label, title: label}, sign); made.onclick = () => KEYS[key](view); return made; };
  const bar = element("div", {class: "pv-bar pv-tool"});
  if (options.length > 1) {
    if ("alone" in root.dataset) bar.append(select(0, WORDS.shown, options));
    bar.append(select(1, WORDS.against, [["", WORDS.nothing], ...options.filter(([slug]) => "alone" in root.dataset || slug !== root.dataset.shown)]));
  }
  bar.append(button("+", WORDS.closer, "+"), button("−", WORDS.farther, "-"), button("⤢", WORDS.whole, "0"));
  const frame = element("div", {class: "pv-tool"}, view.canvas);
  root.append(bar, frame, view.tip, view.said, view.differs, view.legend);
  if (root === document.querySelector(".pv")) root.append(element("p", {class: "pv-hint pv-tool"}, WORDS.hint));
  root.viewer = view;
  await shown(view);
  root.classList.add("pv-live");
  look(view, 0, view.longest);
  listen(view);
  new ResizeObserver(() => paint(view)).observe(frame);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => paint(view));
  new MutationObserver(() => paint(view)).observe(document.documentElement, {attributes: true});
  if ("alone" in root.dataset) view.canvas.focus({preventScroll: true});
  return view;
}

async function shown(view) {
  const slugs = view.slugs.filter(Boolean), timelines = await Promise.all(slugs.map(timelineOf));
  view.panels = panelsOf(timelines, "alone" in view.root.dataset ? Math.max(320, window.innerHeight - 320) : 480);
  view.longest = Math.max(...timelines.map(timeline => timeline.makespan));
  view.canvas.setAttribute("aria-label", fill(WORDS.canvas, timelines.map(timeline => timeline.title).join(", ")));
  view.differs.textContent = timelines.length > 1 ? difference(...timelines) : "";
  view.legend.replaceChildren(legend(timelines), causes(timelines));
  view.said.textContent = "";
  for (const at of [0, 1]) if (view[`select${at}`]) view[`select${at}`].value = view.slugs[at];
}

// Never farther than everything, never closer than what numbers can tell apart.
function look(view, t0, t1) {
  const span = Math.min(Math.max(t1 - t0, view.longest * 1e-9), view.longest * 1.02);
  view.t0 = Math.min(Math.max(t0, -0.01 * view.longest), view.longest * 1.01 - span);
  view.t1 = view.t0 + span;
  paint(view);
}

const move = (view, part) => { const by = part * (view.t1 - view.t0); look(view, view.t0 + by, view.t1 + by); keep(view); };

function zoom(view, factor, around = null) {
  const chosen = view.chosen && view.panels[view.chosen.panel].timeline.work.start[view.chosen.i];
  const fixed = around ?? (chosen !== null && chosen >= view.t0 && chosen <= view.t1 ? chosen : (view.t0 + view.t1) / 2);
  look(view, fixed - (fixed - view.t0) * factor, fixed + (view.t1 - fixed) * factor);
  keep(view);
}

function choose(view, chosen, bring = false) {
  view.chosen = chosen;
  view.said.textContent = chosen ? about(view, chosen) : "";
  const {start, end} = chosen ? view.panels[chosen.panel].timeline.work : {}, span = view.t1 - view.t0;
  if (bring && (end[chosen.i] > view.t1 || start[chosen.i] < view.t0)) look(view, start[chosen.i] - span / 2, start[chosen.i] + span / 2);
  else paint(view);
  keep(view);
}

const about = (view, {panel, rank, i, k}) => {
  const step = (view.t1 - view.t0) / Math.max(1, view.canvas.clientWidth - LEFT), {timeline} = view.panels[panel];
  return i >= 0 ? aboutAction(timeline, i, step) : aboutIdle(timeline, rank, k, step);
};

function tip(view, found, [x, y] = [0, 0]) {
  view.tip.hidden = !found || (found.i < 0 && found.k < 0);
  if (view.tip.hidden) return;
  view.tip.textContent = about(view, found);
  const top = view.canvas.offsetTop + y + 14, room = view.root.clientWidth - view.tip.offsetWidth;
  view.tip.style.left = `${Math.max(0, Math.min(x + 14, room))}px`;
  view.tip.style.top = `${top}px`;
}

function paint(view) {
  view.waiting ??= requestAnimationFrame(() => { view.waiting = null; if (view.canvas.clientWidth) draw(view); });
}

function legend(timelines) {
  const list = element("ul", {class: "pv-legend", "aria-label": WORDS.colours}), colourOf = new Map();
  for (const {colours, op} of timelines) for (const each of new Set(op)) if (!colourOf.has(each)) colourOf.set(each, colours.slice(each * colours.length / 4));
  for (const [used, [even, odd]] of [...colourOf].sort((a, b) => a[0] - b[0])) {
    const swatch = element("i");
    swatch.style.background = `linear-gradient(90deg, ${even} 50%, ${odd} 50%)`;
    list.append(element("li", {}, swatch, WORDS.ops[used]));
  }
  return list;
}

// Idle seconds of all ranks by cause, for one timeline or two and their difference.
function causes(timelines) {
  const totals = timelines.map(({idle}) => idle.sums.map(each => each.at(-1))), two = timelines.length > 1;
  const heads = [WORDS.cause, ...timelines.flatMap((_, at) => [two ? `${"AB"[at]}: ${WORDS.seconds}` : WORDS.seconds, WORDS.share]), ...(two ? [WORDS.difference] : [])];
  const cells = values => [...timelines.flatMap((each, at) => [duration(each, values[at]), percent(values[at] / (each.p * each.makespan))]),
    ...(two ? [(values[1] > values[0] ? "+" : "") + (values[1] < values[0] ? "−" : "") + duration(timelines[0], Math.abs(values[1] - values[0]))] : [])];
  const line = (values, head, swatch = null) => element("tr", {}, element("th", {scope: "row"}, element("span", {}, ...(swatch ? [swatch] : []), head)), ...cells(values).map(text => element("td", {}, text)));
  const rows = WORDS.causes.flatMap((words, cause) => {
    if (!totals.some(each => each[cause] > 0)) return [];
    const swatch = element("i");
    swatch.style.background = `url(${TILES[cause].toDataURL()})`;
    return [line(totals.map(each => each[cause]), words, swatch)];
  });
  const all = line(totals.map(each => each.reduce((sum, s) => sum + s, 0)), WORDS.idle);
  return element("div", {class: "pv-scroll", tabindex: 0, role: "region", "aria-label": WORDS.cause}, element("table", {class: "pv-causes"},
    element("thead", {}, element("tr", {}, ...heads.map(head => element("th", {scope: "col"}, element("span", {}, head))))), element("tbody", {}, ...rows, all)));
}

// "#t=1.2-3.4&rank=3&action=3F0", with the timelines where a page has several; other addresses are left alone.
function keep(view) {
  clearTimeout(view.keeping);
  view.keeping = setTimeout(() => {
    view.keeping = null;
    const digits = Math.max(1, Math.ceil(Math.log10(view.longest / (view.t1 - view.t0))) + 5), said = [`t=${[view.t0, view.t1].map(time => Number(Math.max(0, time).toPrecision(digits))).join("-")}`];
    if (view.chosen) {
      const {timeline} = view.panels[view.chosen.panel];
      said.push(`rank=${timeline.rankOf[view.chosen.i]}`, `action=${nameOf(timeline, view.chosen.i)}`);
      if (view.chosen.panel) said.push("of=2");
    }
    if (islands.size > 1) said.push(`view=${encodeURIComponent(view.slugs[0])}`, ...(view.slugs[1] ? [`with=${encodeURIComponent(view.slugs[1])}`] : []));
    try { history.replaceState(null, "", `#${said.join("&")}`); } catch { /* a page inside another may not */ }
  }, 150);
}

async function restore(views) {
  const number = "([\\d.]+(?:e[+-]?\\d+)?)", time = location.hash.match(new RegExp(`[#&]t=${number}-${number}(?:&|$)`));
  if (!time) return;
  const asked = new URLSearchParams(location.hash.slice(1)), slug = asked.get("view"), second = asked.get("with");
  const view = views.find(each => "alone" in each.root.dataset || each.slugs[0] === slug) ?? views[0];
  if (islands.has(slug) && "alone" in view.root.dataset) view.slugs = [slug, ""];
  if (slug) view.slugs[1] = islands.has(second) ? second : "";
  await shown(view);
  const panel = asked.get("of") === "2" && view.panels[1] ? 1 : 0, {timeline} = view.panels[panel], rank = Number(asked.get("rank") ?? NaN);
  const i = asked.has("action") ? indexOf(timeline, asked.get("action"), rank >= 0 && rank < timeline.p ? rank : null) : -1;
  view.chosen = i >= 0 ? {panel, i} : null;
  look(view, Number(time[1]), Number(time[2]));
  view.said.textContent = view.chosen ? about(view, view.chosen) : "";
  view.root.scrollIntoView({block: "center"});
}

if ("DecompressionStream" in window) Promise.all([...document.querySelectorAll(".pv")].map(build)).then(views => {
  if (!views.length) return;
  document.documentElement.dataset.timelines = "ready";
  restore(views);
  addEventListener("hashchange", () => restore(views));
});
