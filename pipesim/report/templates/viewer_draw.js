// The picture: one panel for each timeline, ranks as rows; what is narrower than a pixel is mixed into one.

const LEFT = 58, HEAD = 22, AXIS = 26, WIDE = 1.5;
// Okabe and Ito's colours that no action has; patterns tell causes of one colour apart.
const CAUSE_LOOKS = [["#8c959f", "/"], ["#0072b2", "/"], ["#0072b2", "\\"], ["#0072b2", ""], ["#d55e00", ""], ["#f0e442", "/"],
  ["#f0e442", ""], ["#d55e00", "\\"], ["#8c959f", "\\"], ["#8c959f", "x"], ["#8c959f", "."]];
const rgb = colour => [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));
const CAUSE_RGB = CAUSE_LOOKS.map(look => rgb(look[0]));

function tile(cause) {
  const canvas = document.createElement("canvas"), [colour, sign] = CAUSE_LOOKS[cause], pen = canvas.getContext("2d");
  canvas.width = canvas.height = 8;
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 8, 8);
  pen.strokeStyle = pen.fillStyle = "#fffc";
  pen.lineWidth = 1.6;
  for (const [mark, steps] of [["/", [[-2, 2, 2, -2], [-2, 10, 10, -2], [6, 10, 10, 6]]], ["\\", [[-2, 6, 2, 10], [-2, -2, 10, 10], [6, -2, 10, 2]]]])
    if (sign === mark || sign === "x") for (const [a, b, c, d] of steps) { pen.beginPath(); pen.moveTo(a, b); pen.lineTo(c, d); pen.stroke(); }
  if (sign === ".") { pen.beginPath(); pen.arc(4, 4, 1.6, 0, 7); pen.fill(); }
  return canvas;
}
const TILES = CAUSE_LOOKS.map((_, cause) => tile(cause));

function panelsOf(shown, height) {
  const rows = shown.reduce((sum, timeline) => sum + timeline.p, 0), pairs = shown.some(timeline => timeline.joined.some(Boolean));
  const row = Math.max(Math.min(pairs ? 34 : 24, Math.max(6, height / rows)), 1), fitting = Math.min(row, 6000 / rows);
  let top = AXIS;
  return shown.map((timeline, at) => {
    top += HEAD;
    const title = (shown.length > 1 ? `${"AB"[at]}: ` : "") + timeline.title;
    const panel = {timeline, title, top, row: fitting, bottom: top + fitting * timeline.p};
    top = panel.bottom + 6;
    return panel;
  });
}

function draw(view) {
  const {canvas, t0, t1} = view, width = canvas.clientWidth, height = view.panels.at(-1).bottom + 6, dpr = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * dpr) || canvas.height !== Math.round(height * dpr)) {
    canvas.width = Math.round(width * dpr);
    canvas.height = Math.round(height * dpr);
  }
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d"), look = getComputedStyle(canvas), theme = name => look.getPropertyValue(`--pv-${name}`);
  const plot = {pen, dpr, width, t0, scale: (width - LEFT - 4) / (t1 - t0), right: width - 4, ink: theme("ink"), dim: theme("dim"),
    page: theme("page"), line: theme("line"), t1};
  pen.setTransform(dpr, 0, 0, dpr, 0, 0);
  pen.fillStyle = plot.page;
  pen.fillRect(0, 0, width, height);
  axis(plot, view, height);
  for (const panel of view.panels) drawPanel(plot, panel);
  if (view.chosen) arrows(plot, view.panels[view.chosen.panel], view.chosen.i);
}

const xOf = (plot, time) => LEFT + (time - plot.t0) * plot.scale;

function axis(plot, view, height) {
  const {pen} = plot, timeline = view.panels[0].timeline, span = plot.t1 - plot.t0;
  const least = span * 80 / (plot.right - LEFT), power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(each => each >= least);
  pen.font = "12px system-ui, sans-serif";
  pen.textAlign = "center";
  for (let k = Math.ceil(plot.t0 / step); k * step <= plot.t1; k++) {
    const x = xOf(plot, k * step);
    pen.fillStyle = plot.line;
    pen.globalAlpha = 0.35;
    pen.fillRect(x, AXIS - 6, 1, height - AXIS);
    pen.globalAlpha = 1;
    pen.fillStyle = plot.dim;
    if (x > LEFT + 18 && x < plot.right - 18) pen.fillText(moment(timeline, k * step, step), x, 14);
  }
}

function drawPanel(plot, panel) {
  const {pen} = plot, {timeline, top, row, bottom} = panel;
  const gap = row > 8 ? 2 : row > 3 ? 1 : 0, every = Math.ceil(13 / row);
  pen.fillStyle = plot.ink;
  pen.font = "600 12px system-ui, sans-serif";
  pen.textAlign = "left";
  pen.fillText(fitted(pen, panel.title, plot.right - LEFT), LEFT, top - 6);
  pen.font = "12px system-ui, sans-serif";
  pen.fillStyle = plot.dim;
  pen.textAlign = "right";
  for (let rank = 0; rank < timeline.p; rank += every) pen.fillText(fill(WORDS.rank, rank), LEFT - 6, top + (rank + 0.5) * row + 4, LEFT - 8);
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, top, plot.right - LEFT, bottom - top);
  pen.clip();
  const columns = Math.ceil((plot.right - LEFT) * plot.dpr), thin = new ImageData(columns, timeline.p), wide = {work: [], idle: []};
  timeline.rgb ??= timeline.colours.map(rgb);
  const shades = timeline.colours.length / 8, hues = [0, 1, 2, 3].map(op => timeline.rgb[op * shades * 2]);
  for (let rank = 0; rank < timeline.p; rank++) {
    const mixed = new Float32Array(4 * columns);
    spread(plot, timeline.idle, rank, CAUSE_RGB, mixed, wide.idle);
    spread(plot, timeline.work, rank, hues, mixed, wide.work);
    lay(mixed, thin.data, rank * columns * 4);
  }
  idleBars(plot, panel, wide.idle, gap);
  const layer = Object.assign(document.createElement("canvas"), {width: columns, height: timeline.p});
  layer.getContext("2d").putImageData(thin, 0, 0);
  pen.imageSmoothingEnabled = false;
  for (let rank = 0; rank < timeline.p; rank++)
    pen.drawImage(layer, 0, rank, columns, 1, LEFT, top + rank * row + gap, columns / plot.dpr, row - 2 * gap);
  workBars(plot, panel, wide.work, gap);
  const end = xOf(plot, timeline.makespan);
  pen.fillStyle = plot.ink;
  pen.fillRect(end, top, 1.5, bottom - top);
  pen.restore();
}

function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let signs = [...text].slice(0, 200);
  while (signs.length && pen.measureText(`${signs.join("")}…`).width > width) signs = signs.slice(0, -1);
  return `${signs.join("")}…`;
}

// Spans of a rank that can be seen: wide ones are collected, of narrow ones each pixel gets its share of every kind.
function spread(plot, spans, rank, hues, mixed, wide) {
  const {scale, dpr, t0, t1} = plot, pixel = 1 / (scale * dpr), last = spans.first[rank + 1];
  spans.used ??= hues.map((_, kind) => kind).filter(kind => spans.sums[kind].at(-1) > 0);
  for (let i = endsAfter(spans, rank, t0); i < last && spans.start[i] < t1;) {
    if ((spans.end[i] - spans.start[i]) * scale * dpr >= WIDE) { wide.push(i); i++; continue; }
    const column = Math.max(0, Math.floor((spans.start[i] - t0) / pixel)), right = t0 + (column + 1) * pixel;
    const next = Math.max(i + 1, endsAfter(spans, rank, right, i));
    const length = next < last ? Math.min(pixel, spans.start[next] - spans.start[i]) : pixel;
    for (const kind of spans.used) {
      const share = (spans.sums[kind][next] - spans.sums[kind][i]) / length;
      if (share <= 0) continue;
      for (let channel = 0; channel < 3; channel++) mixed[4 * column + channel] += share * hues[kind][channel];
      mixed[4 * column + 3] += share;
    }
    i = next;
  }
}

function lay(mixed, data, at) {
  for (let k = 0; k < mixed.length; k += 4) {
    const share = mixed[k + 3];
    if (!(share > 0)) continue;
    for (let channel = 0; channel < 3; channel++) data[at + k + channel] = mixed[k + channel] / share;
    data[at + k + 3] = 255 * Math.min(1, share);
  }
}

function idleBars(plot, {timeline, top, row}, wide, gap) {
  const {pen} = plot, rankOf = ranksOf(timeline.idle, wide), fills = TILES.map(each => pen.createPattern(each, "repeat"));
  const inset = row > 12 ? row / 4 : gap;
  for (const cause of new Set(wide.map(k => timeline.cause[k]))) {
    for (const patterned of [false, true]) {
      pen.fillStyle = patterned ? fills[cause] : CAUSE_LOOKS[cause][0];
      wide.forEach((k, at) => {
        const x = Math.max(LEFT - 2, xOf(plot, timeline.idle.start[k])), end = Math.min(plot.right + 2, xOf(plot, timeline.idle.end[k]));
        if (timeline.cause[k] === cause && end - x >= 4 === patterned) pen.fillRect(x, top + rankOf[at] * row + inset, end - x, row - 2 * inset);
      });
    }
  }
}

// The spans come by rank: where each rank's begin is known.
function ranksOf(spans, wide) {
  let rank = 0;
  return wide.map(k => { while (k >= spans.first[rank + 1]) rank++; return rank; });
}

function workBars(plot, {timeline, top, row}, wide, gap) {
  const {pen} = plot, {start, end} = timeline.work, by = new Map(), labels = [];
  for (const i of wide) {
    if (!by.has(timeline.colour[i])) by.set(timeline.colour[i], []);
    by.get(timeline.colour[i]).push(i);
  }
  const thick = row - 2 * gap, halfOf = i => timeline.joined[i] ? 1 : i > 0 && timeline.joined[i - 1] ? 2 : 0;
  for (const [colour, group] of by) {
    pen.fillStyle = timeline.colours[colour];
    for (const i of group) {
      const half = halfOf(i), height = half ? thick / 2 : thick, y = top + timeline.rankOf[i] * row + gap + (half === 2 ? height : 0);
      const x = Math.max(LEFT - 2, xOf(plot, start[i])), right = Math.min(plot.right + 2, xOf(plot, end[i])), wideEnough = right - x >= 4;
      pen.fillRect(x, y, right - x - (wideEnough ? 0.75 : 0), height);
      if (height >= 11 && right - x >= 12) labels.push([i, x, right - x, y + height / 2 + 4, timeline.light[colour]]);
    }
  }
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = "center";
  for (const [i, x, width, y, light] of labels) {
    const text = [nameOf(timeline, i), String(timeline.micro_batch[i])].find(each => 6.5 * each.length + 4 <= width);
    pen.fillStyle = light ? "#fff" : "#000";
    if (text) pen.fillText(text, Math.max(x, LEFT) + (Math.min(x + width, plot.right) - Math.max(x, LEFT)) / 2, y);
  }
}

// The chosen action's frame, and arrows from what it needs and to what needs it.
function arrows(plot, {timeline, top, row, bottom}, i) {
  const {pen} = plot, {start, end} = timeline.work, middle = k => top + (timeline.rankOf[k] + 0.5) * row;
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, top - 2, plot.right - LEFT, bottom - top + 4);
  pen.clip();
  for (const [colour, width] of [[plot.page, 4], [plot.ink, 1.75]]) {
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = width;
    pen.strokeRect(xOf(plot, start[i]), middle(i) - row / 2 + 1, Math.max(2, (end[i] - start[i]) * plot.scale), row - 2);
    for (const source of needs(timeline, i)) if (source >= 0) arrow(plot, end[source], middle(source), start[i], middle(i));
    for (const reader of readers(timeline, i)) arrow(plot, end[i], middle(i), start[reader], middle(reader));
  }
  pen.restore();
}

function arrow(plot, from, y0, to, y1) {
  const {pen} = plot, x0 = xOf(plot, from), x1 = xOf(plot, to), bend = Math.max(8, Math.min(40, (x1 - x0) / 2));
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
  pen.moveTo(x1 - 6, y1 - 4);
  pen.lineTo(x1, y1);
  pen.lineTo(x1 - 6, y1 + 4);
  pen.stroke();
}
