// The page: what it unpacks, copies and says, its theme, and its charts.

const {words, rules} = JSON.parse(document.getElementById("page-rules").textContent);
const filled = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);

const unpack = text => {
  const bytes = Uint8Array.from(atob(text.trim()), letter => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
};

const toast = document.querySelector(".toast");
let fading;
const say = text => {
  toast.textContent = text.length > 200 ? text.slice(0, 200) + "…" : text;
  clearTimeout(fading);
  fading = setTimeout(() => { toast.textContent = ""; }, 4000);
};

const copy = async text => {
  const done = navigator.clipboard?.writeText(text).then(() => true, () => false);
  say(filled(await done ? words.copied : words.not_copied, {value: text}));
};

const root = document.documentElement;
const remembered = {
  get: () => { try { return localStorage.getItem("pipesim-theme"); } catch { return null; } },
  set: theme => { try { localStorage.setItem("pipesim-theme", theme); } catch { /* a page from a disk may have no store */ } },
};
const setUpTheme = () => {
  const theme = remembered.get();
  if (theme === "dark" || theme === "light") root.dataset.theme = theme;
  document.querySelector(".theme").onclick = () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    remembered.set(root.dataset.theme);
  };
};

let unpacked;
const plotly = () => unpacked ??= unpack(document.getElementById("plotly").textContent).then(source => {
  const script = document.createElement("script");
  script.textContent = source;
  document.head.append(script);
  return window.Plotly;
});

/** Without Plotly's button that sends a chart to its makers. */
const CONFIG = {responsive: true, displaylogo: false, modeBarButtonsToRemove: ["sendChartToCloud"], plotlyServerURL: ""};

/** Names that are no longer than a legend is wide; Plotly reads them as HTML, so no half of an escape is left. */
const short = text => typeof text === "string" && text.length > 60 ? text.slice(0, 60).replace(/&[^;]*$/, "") + "…" : text;
const shortened = trace => ({...trace, name: short(trace.name), text: Array.isArray(trace.text) ? trace.text.map(short) : trace.text});

/** Plotly draws parallel coordinates by WebGL alone, which old machines and remote screens may lack. */
const canDraw = data => data.every(({type}) => type !== "parcoords") || Boolean(document.createElement("canvas").getContext("webgl"));

/** Charts are drawn when they come near; until then, and on paper, their picture stands there. */
const setUpCharts = () => {
  const watch = new IntersectionObserver(async seen => {
    for (const {target} of seen.filter(entry => entry.isIntersecting)) {
      watch.unobserve(target);
      const {data, layout} = JSON.parse(target.querySelector(".plot").textContent);
      if (!canDraw(data)) continue;
      const {newPlot} = await plotly();
      target.classList.add("live");
      await newPlot(target.querySelector(".chart"), data.map(shortened), layout, CONFIG);
    }
  }, {rootMargin: "400px"});
  for (const figure of document.querySelectorAll("figure.picture")) watch.observe(figure);
};

if ("DecompressionStream" in window) {
  root.classList.add("runs");
  setUpTheme();
  for (const block of document.querySelectorAll(".table")) setUpTable(block);
  setUpCharts();
}
