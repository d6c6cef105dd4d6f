// The KV cache: who holds which block, now or at a moment of the last hour, and shared prefixes.
const COLUMNS = 128, MOST_ROWS = 128, ROW = 10, GAP = 2, CACHED = -1;
const READ_MS = 10000, RETRY_MS = 1000, TICK_MS = 250, MOST_HOLDERS = 100, STALE = 5;
// Neighbours differ in lightness, too.
const COLORS = ["#0d9488", "#d97706", "#6366f1", "#e11d48", "#5bb0e4", "#65730b", "#a855a0", "#4a62c8"];

// The color that a request keeps from one map to the next (FNV-1a).
function colorOf(request) {
  let hash = 0x811c9dc5;
  for (const character of request) hash = Math.imul(hash ^ character.codePointAt(0), 0x01000193);
  return COLORS[(hash >>> 0) % COLORS.length];
}

// The map's runs, [owner, count, shared] each, cut where a row ends.
function bars(runs) {
  const found = [];
  let at = 0;
  for (const [owner, length, shared] of runs)
    for (let left = length; left > 0 && at < COLUMNS * MOST_ROWS;) {
      const column = at % COLUMNS, width = Math.min(left, COLUMNS - column);
      found.push({ row: Math.floor(at / COLUMNS), column, width, owner, shared });
      at += width;
      left -= width;
    }
  return found;
}

// [index, depth] of every prefix, each followed by those that continue it.
function inOrder(prefixes) {
  const children = new Map();
  prefixes.forEach((one, at) => {
    const parent = one.parent ?? -1;
    children.set(parent, [...(children.get(parent) || []), at]);
  });
  const found = [], waiting = (children.get(-1) || []).map((at) => [at, 0]).reverse();
  while (waiting.length) {
    const [at, depth] = waiting.pop();
    found.push([at, depth]);
    waiting.push(...(children.get(at) || []).map((child) => [child, depth + 1]).reverse());
  }
  return found;
}

function sentence(map) {
  return `${count(map.active)} of ${count(map.blocks)} blocks are held by requests, ${
    count(map.cached)} are cached, ${count(map.free)} are free. A block holds ${map.block_size} ` +
    "tokens. Since the engine's start, ";
}

function drawMap(state) {
  const { canvas } = state.parts, map = state.shown;
  const width = canvas.parentElement.clientWidth;
  if (!map || !width) return;
  const drawn = bars(map.runs), rows = drawn.length ? drawn.at(-1).row + 1 : 1;
  canvas.style.height = `${rows * ROW}px`;
  const pen = pencil(canvas, width, rows * ROW), look = theme(state.root), cell = width / COLUMNS;
  for (const bar of drawn) {
    const box = [bar.column * cell, bar.row * ROW, bar.width * cell, ROW - GAP];
    pen.globalAlpha = bar.owner >= 0 ? 1 : bar.owner === CACHED ? 0.3 : 0.07;
    pen.fillStyle = bar.owner >= 0 ? colorOf(map.owners[bar.owner][0]) : look.text;
    pen.fillRect(...box);
    if (!bar.shared) continue;
    pen.strokeStyle = look.text;
    pen.lineWidth = 2;
    pen.strokeRect(box[0] + 1, box[1] + 1, box[2] - 2, box[3] - 2);
  }
  canvas.setAttribute("aria-label", `${count(map.blocks)} blocks: ${count(map.active)} active, ${
    count(map.cached)} cached, ${count(map.free)} free`);
  state.bars = drawn;
}

function pointedAt(state, event) {
  const column = Math.floor(event.offsetX / state.parts.canvas.clientWidth * COLUMNS);
  const row = Math.floor(event.offsetY / ROW);
  const bar = (state.bars || []).find((one) => one.row === row && one.column <= column &&
    column < one.column + one.width);
  if (!bar) return "";
  if (bar.owner < 0) return bar.owner === CACHED ? "cached" : "free";
  const [request, key] = state.shown.owners[bar.owner];
  return `${request}${key ? ` (${key})` : ""}${
    bar.shared ? ", shared with others" : ""}`;
}

// Fills a table; cells are texts or elements.
function fill(table, otherwise, heads, rows) {
  const head = element("tr"), body = element("tbody"), top = element("thead");
  for (const text of heads) {
    const cell = element("th", "", text);
    cell.scope = "col";
    head.append(cell);
  }
  top.append(head);
  for (const cells of rows) {
    const row = element("tr");
    for (const one of cells) {
      const cell = element("td");
      cell.append(one);
      row.append(cell);
    }
    body.append(row);
  }
  table.replaceChildren(...(rows.length ? [top, body] : []));
  table.nextSibling.textContent = rows.length ? "" : otherwise;
}

function linked(state, request) {
  const [server] = state.component.data.servers;
  return link(state, about(state, server, `/request?id=${encodeURIComponent(request)}`), request);
}

function showHolders(state) {
  const map = state.shown;
  const owners = [...map.owners].sort((a, b) => b[2] - a[2]).slice(0, MOST_HOLDERS);
  fill(state.parts.holders, "No request holds a block.",
    ["request", "key", "blocks", "share of pool", "tokens"],
    owners.map(([request, key, blocks, tokens]) => [linked(state, request), key || "",
      count(blocks), `${fixed(100 * blocks / map.blocks, 1)} %`, count(tokens)]));
}

function showPrefixes(state, tree) {
  const now = serverNow(state);
  state.tree = tree;
  const rows = inOrder(tree.prefixes).map(([at, depth]) => {
    const one = tree.prefixes[at];
    const name = element("span", "", `${depth ? "+ " : ""}${count(one.tokens)} tokens`);
    name.style.paddingLeft = `${depth}em`;
    return [name, count(one.hits), count(one.holders),
      now === null ? UNKNOWN : `${sinceWords(now - one.last_used)} ago`, linked(state, one.request_id)];
  });
  fill(state.parts.prefixes, "No prefix has been reused yet.",
    ["prefix", "hits", "held by", "last used", "computed by"], rows);
  if (tree.left_out) state.parts.prefixes.nextSibling.textContent =
    `${count(tree.left_out)} less-used prefixes are not shown.`;
}

function showMap(state, map) {
  const before = state.shown, { told, lost } = state.parts;
  state.shown = map;
  told.textContent = sentence(map);
  lost.textContent = `${count(map.evictions)} cached blocks were evicted and ${
    count(map.preemptions)} sequences preempted.`;
  const grew = before && state.at === null && (map.evictions > before.evictions ||
    map.preemptions > before.preemptions);
  lost.classList.toggle("flash", Boolean(grew));
  drawMap(state);
  showHolders(state);
}

// --- time ---------------------------------------------------------------------------------------

// The server's clock, by its newest map: the browser's may be wrong.
function serverNow(state) {
  return state.newest ? state.newest.time + (performance.now() - state.arrived) / 1000 : null;
}

// Of which time the map is, for the eye and, without an age that grows, for a screen reader.
function whenWords(state) {
  if (state.at !== null) {
    const shown = state.shown?.time ?? state.at, now = serverNow(state);
    return [now === null ? clock(shown) : `${clock(shown)}, ${sinceWords(now - shown)} ago`, clock(shown)];
  }
  const age = state.newest ? serverNow(state) - state.newest.time : 0;
  if (state.away) return [state.away, state.away];
  if (age > STALE && isPaused(state, state.arrived)) return ["paused", "paused"];
  return age > STALE ? [`The newest map is ${sinceWords(age)} old.`, "out of date"] :
    state.newest ? ["now", "now"] : ["", ""];
}

function showWhen(state) {
  const { slider, when } = state.parts, [seen, said] = whenWords(state);
  when.textContent = seen;
  slider.setAttribute("aria-valuetext", said);
}

function showTime(state) {
  const { slider, live } = state.parts;
  slider.max = state.times.length;
  slider.disabled = !state.times.length;
  const place = state.at === null ? -1 : state.times.indexOf(state.at);
  slider.value = place < 0 ? state.times.length : place;
  live.disabled = state.at === null;
  showWhen(state);
}

function goTo(state, at) {
  state.at = at;
  showTime(state);
  if (at === null) { if (state.newest) showMap(state, state.newest); return; }
  // One is requested at a time: while the slider is dragged, its last place is shown.
  if (state.asking) return;
  state.asking = true;
  read(state, `at/${at}`).then((map) => {
    if (state.at !== at || state.closed) return;
    if (map) { showMap(state, map); showTime(state); return; }
    clearTimeout(state.retry);
    state.retry = setTimeout(() => { if (state.at === at && !state.closed) goTo(state, at); }, RETRY_MS);
  }).finally(() => {
    state.asking = false;
    if (state.at !== null && state.at !== at) goTo(state, state.at);
  });
}

async function read(state, path) {
  const { data } = state.component;
  try {
    const answer = await fetched(`${data.kv}/${path}?token=${data.token}`);
    if (answer.status === 403) renew(state);
    return answer.ok ? await answer.json() : null;
  } catch { return null; }
}

function refresh(state) {
  renewInTime(state);
  if (state.resting) return;
  read(state, "times").then((found) => {
    if (!found || state.closed) return;
    state.times = found.times;
    showTime(state);
  });
  read(state, "prefixes").then((tree) => { if (tree && !state.closed) showPrefixes(state, tree); });
}

function onFrame(state, frame) {
  if (frame.away !== undefined) state.away = frame.away;
  else if (frame.kv) {
    state.away = "";
    const isFirst = !state.newest;
    // A feed that is opened again begins with the map that it had last.
    if (isFirst || state.newest.time !== frame.kv.time) state.arrived = performance.now();
    state.newest = frame.kv;
    if (isFirst && state.tree) showPrefixes(state, state.tree);
    if (state.at === null) showMap(state, frame.kv);
  } else return;
  if (state.at === null) showTime(state);
}

// --- the page -----------------------------------------------------------------------------------

function titled(title, table) {
  const box = element("section");
  box.append(element("h3", "", title), table, element("p", "quiet"));
  return box;
}

function build(state) {
  const page = element("div", "kv"), told = element("span"), lost = element("span");
  const canvas = element("canvas"), hover = element("p", "quiet hover", "Point at a block.");
  const time = element("div", "time"), slider = element("input"), live = element("button", "", "Now");
  const when = element("span", "quiet"), tables = element("div", "tables"), text = element("p");
  const [holders, prefixes] = [element("table"), element("table")];
  told.textContent = "The first map is on its way.";
  text.append(told, lost);
  canvas.setAttribute("role", "img");
  Object.assign(slider, { type: "range", min: 0, max: 0, step: 1, disabled: true });
  slider.setAttribute("aria-label", "Time of the map");
  live.type = "button";
  time.append(slider, live, when);
  tables.append(titled("Requests that hold blocks", holders), titled("Shared prefixes", prefixes));
  page.append(text, canvas, hover, time, tables);
  state.parts = { page, told, lost, canvas, hover, slider, live, when, holders, prefixes };
  slider.addEventListener("input", () => goTo(state, state.times[slider.value] ?? null));
  live.addEventListener("click", () => goTo(state, null));
  canvas.addEventListener("pointermove", (event) => {
    hover.textContent = pointedAt(state, event) || "Point at a block.";
  });
  state.root.append(page);
}

export default function (component) {
  const root = component.parentElement, { data } = component;
  const names = JSON.stringify([data.feed, data.servers]);
  let state = root.quire;
  if (!state || state.names !== names) {
    if (state) state.end();
    state = root.quire = { root, component, names, at: null, times: [], away: "" };
    build(state);
    const resize = new ResizeObserver(() => drawMap(state));
    resize.observe(state.parts.page);
    state.onFrame = (_, frame) => onFrame(state, frame);
    const timers = [setInterval(() => refresh(state), READ_MS),
      setInterval(() => {
        if (restFeed(state)) refresh(state);
        watchFeed(state);
        showWhen(state);
      }, TICK_MS)];
    state.end = () => {
      state.closed = true;
      if (state.source) state.source.close();
      timers.forEach(clearInterval);
      resize.disconnect();
      state.parts.page.remove();
    };
  }
  noteToken(state, data.token);
  const isNew = !state.source;
  state.component = component;
  state.closed = false;
  follow(state);
  if (isNew) refresh(state);
  return () => { state.end(); delete root.quire; };
}
