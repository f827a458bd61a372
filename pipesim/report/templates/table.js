// A table that sorts, filters, turns pages, copies and saves. Its rows are unpacked when something is first asked of it.

const setUpTable = block => {
  const body = block.querySelector("tbody"), region = block.querySelector(".scroll");
  const heads = [...block.querySelectorAll("thead tr:first-child th")], fields = block.querySelector(".filters");
  const total = Number(block.dataset.rows), size = Math.max(1, Number(block.dataset.page));
  const standing = [...body.rows];  // as Python wrote them: rows 0, 1, …
  const all = standing.length === total ? [...standing.keys()] : Array.from({length: total}, (_, row) => row);
  let order = all, from = 0, data = null, unpacking = null;
  const button = name => block.querySelector(`[data-do=${name}]`);
  const ready = async () => {
    unpacking ??= unpack(block.querySelector(".columns").textContent).then(JSON.parse);
    return data ??= await unpacking;
  };

  const made = row => {
    if (row < standing.length) return standing[row];
    const line = document.createElement("tr");
    line.classList.toggle("stands-out", data.emphasis.includes(row));
    line.append(...data.columns.map((column, at) => {
      const cell = document.createElement("td"), isText = data.heads[at].kind === "text";
      const inner = isText ? cell.appendChild(document.createElement("bdi")) : cell;
      inner.textContent = show(column[row], data.heads[at], rules);
      cell.className = isText ? "" : "right";
      return cell;
    }));
    return line;
  };

  const draw = () => {
    body.replaceChildren(...order.slice(from, from + size).map(made));
    const filtered = order.length < total, count = number => grouped(String(number));
    const said = !order.length ? words.none : filtered ? words.matching : words.rows;
    block.querySelector(".pager span").textContent = filled(said, {
      first: count(from + 1), last: count(Math.min(from + size, order.length)), all: count(order.length), total: count(total),
    });
    block.querySelector(".pager").hidden = !filtered && total <= size;
    button("previous").disabled = from === 0;
    button("next").disabled = from + size >= order.length;
    if (button("reset")) button("reset").hidden = order === all;
    enter(body.rows[0]?.cells[0], false);
  };

  const arrange = async () => {
    await ready();
    const tests = [];
    for (const [at, field] of [...fields.querySelectorAll("input")].entries()) {
      const asked = field.value.trim() !== "", test = asked && filter(field.value, data.heads[at], rules);
      field.ariaInvalid = asked && !test ? "true" : null;
      if (test) tests.push(row => test(data.columns[at][row]));
    }
    order = tests.length ? all.filter(row => tests.every(test => test(row))) : all;
    const at = heads.findIndex(head => head.ariaSort);
    if (at >= 0) {
      const compare = comparison(heads[at].ariaSort === "ascending" ? 1 : -1), column = data.columns[at];
      order = order.toSorted((a, b) => compare(column[a], column[b]) || a - b);
    }
    from = 0;
    draw();
  };

  const sortBy = head => {
    const before = head.ariaSort;
    for (const each of heads) each.ariaSort = null;
    head.ariaSort = before === "ascending" ? "descending" : "ascending";
    return arrange();
  };

  const openFilters = async () => {
    await ready();
    if (!fields.cells.length) {
      fields.append(...data.heads.map((head, at) => {
        const cell = document.createElement("td"), field = cell.appendChild(document.createElement("input"));
        field.type = "search";
        field.size = 1;
        field.ariaLabel = filled(words.filter_by, {column: head.title.slice(0, 100)});
        field.placeholder = ["text", "flag"].includes(head.kind) ? words.contains : `< > 1..9 ${head.sign}`.trim();
        field.oninput = arrange;
        return cell;
      }));
    }
    fields.hidden = !fields.hidden;
    button("filter").ariaExpanded = String(!fields.hidden);
    if (!fields.hidden) fields.querySelector("input").focus();
  };

  const turn = pages => ready().then(() => { from += pages * size; draw(); region.scrollTop = 0; });
  const actions = {
    filter: openFilters,
    reset: () => {
      for (const field of fields.querySelectorAll("input")) field.value = "";
      for (const head of heads) head.ariaSort = null;
      button("filter").focus();
      return arrange();
    },
    download: () => ready().then(() => save(data.file, csv(data, order))),
    previous: () => turn(-1),
    next: () => turn(1),
  };

  const value = async cell => (await ready()).columns[cell.cellIndex][order[from + cell.parentElement.sectionRowIndex]];
  /** One cell at a time is reached by the Tab key, the others from there by the arrow keys. */
  const enter = (cell, focus = true) => {
    if (!cell) return;
    body.querySelector("[tabindex]")?.removeAttribute("tabindex");
    cell.tabIndex = 0;
    if (focus) cell.focus();
  };

  for (const head of heads) head.firstElementChild.onclick = () => sortBy(head);
  for (const each of block.querySelectorAll("[data-do]")) each.onclick = () => actions[each.dataset.do]();
  body.onclick = async event => {
    const cell = event.target.closest("td");
    if (!cell || !getSelection().isCollapsed) return;
    enter(cell);
    copy(raw(await value(cell)));
  };
  body.onpointerover = async event => {
    const cell = event.target.closest("td");
    if (cell && !cell.title) cell.title = raw(await value(cell)).slice(0, 1000);
  };
  body.onkeydown = async event => {
    const cell = event.target, line = cell.parentElement;
    const next = {
      ArrowLeft: cell.previousElementSibling, ArrowRight: cell.nextElementSibling,
      ArrowUp: line.previousElementSibling?.cells[cell.cellIndex], ArrowDown: line.nextElementSibling?.cells[cell.cellIndex],
    }[event.key];
    if (next) enter(next);
    if (event.key.startsWith("Arrow")) event.preventDefault();
    const copying = (event.ctrlKey || event.metaKey) && event.key === "c" && getSelection().isCollapsed;
    if (event.key === "Enter" || copying) copy(raw(await value(cell)));
  };
  enter(body.rows[0]?.cells[0], false);
};
