// The Live page: verdict, tiles, charts with one crosshair, the slowest requests.
const STALE_SECONDS = 3;
const CLOCK_SECONDS = 2; // smaller differences of clocks are ignored: a message may just be late
const LATE_SECONDS = 10; // after which a message is not just late: the clock was set back

function level(value, amber, red) {
  return value === null || value === undefined ? "" :
    value > red ? "critical" : value > amber ? "warning" : "";
}

function figures(overviews) {
  const sum = (pick) => overviews.reduce((total, one) => total + (pick(one) || 0), 0);
  const worst = (pick) => overviews.reduce((most, one) => {
    const value = pick(one);
    return value === null || value === undefined ? most : Math.max(most ?? value, value);
  }, null);
  const least = (pick) => overviews.reduce((low, one) => {
    const value = pick(one);
    return value === null || value === undefined ? low : Math.min(low ?? value, value);
  }, null);
  const ended = (prefix) => sum((one) => Object.entries(one.minute.ended)
    .reduce((total, [name, rate]) => total + (name.startsWith(prefix) ? rate : 0), 0));
  const slo = (name) => least((one) => one.slo[name]);
  return { sum, worst, least, ended, slo };
}

// Without the zeros that only keep a measured value's width.
function briefly(seconds) {
  return seconds < 1 ? `${Number((seconds * 1000).toPrecision(3))} ms`
    : `${Number(seconds.toPrecision(3))} s`;
}

// The median and the objective, with one unit where they share it.
function beside(p50, limit) {
  const [value, unit] = lasting(p50), objective = briefly(limit);
  return `p50 ${value}${objective.endsWith(` ${unit}`) ? "" : ` ${unit}`}, SLO ${objective}`;
}

// All per second, of a minute. On a quiet server one or two refused requests are a large share.
function levelOfRequests(received, refused, failed) {
  const share = Math.round(refused * 60) < 3 ? 0 : refused / received;
  if (failed > received * 0.01 || share > 0.1) return "critical";
  return share > 0.01 ? "warning" : "";
}

function tilesOf(overviews) {
  const { sum, worst, least, ended, slo } = figures(overviews);
  const out = sum((one) => one.minute.tokens_out);
  const computed = sum((one) => one.minute.tokens_in_computed);
  const cached = sum((one) => one.minute.tokens_in_cached);
  const many = overviews.length > 1 ? "worst, " : "";
  const latency = (label, name) => {
    const p95 = worst((one) => one.minute[name].p95), limit = slo(name);
    const [value, unit] = lasting(p95);
    const late = level(p95, limit, limit * 2.5);
    return { label, value, unit: p95 === null ? unit : `${unit} ${late ? "▲" : "✓"}`, level: late,
      note: p95 === null ? "no data for 1 min" :
        many + beside(worst((one) => one.minute[name].p50), limit) };
  };
  const running = sum((one) => one.running), most = sum((one) => one.max_running);
  const waiting = sum((one) => one.waiting), oldest = worst((one) => one.oldest_waiting);
  const refused = ended("refused:"), failed = ended("error:");
  const received = sum((one) => one.minute.received);
  const blocks = sum((one) => one.kv_blocks_active), total = sum((one) =>
    one.kv_blocks_active + one.kv_blocks_cached + one.kv_blocks_free);
  const met = least((one) => {
    const shares = Object.values(one.five_minutes.attainment).filter((share) => share !== null);
    return shares.length ? Math.min(...shares) : null;
  });
  return [
    { label: "Output, last minute", value: number(out), unit: "tok/s",
      note: `${number(sum((one) => one.minute.recomputed_share) / overviews.length * 100)
      } % recomputed` },
    { label: "Input, last minute", value: number(computed + cached), unit: "tok/s",
      note: computed + cached ? `${number(cached / (computed + cached) * 100)} % cached` : "no prompts" },
    latency("First token, p95", "ttft"),
    latency("Between tokens, p95", "itl"),
    { label: "Running", value: count(running), unit: `/ ${count(most)}`,
      level: running >= most && waiting ? "warning" : "",
      note: `KV ${number(total ? blocks / total * 100 : 0)} % in use` },
    { label: "Waiting", value: count(waiting), unit: "", level: level(oldest, 1, 5),
      note: waiting ? `oldest ${duration(oldest)}` : "none" },
    { label: "Requests, last minute", value: number(received), unit: "/s",
      level: levelOfRequests(received, refused, failed),
      note: refused || failed ? `${number(refused)} refused, ${number(failed)} failed` :
        "0 refused, 0 failed" },
    { label: "SLO met, 5 min", value: met === null ? UNKNOWN : number(met * 100),
      unit: met === null ? "" : "%",
      level: met === null ? "" : met < 0.9 ? "critical" : met < 0.99 ? "warning" : "",
      note: met === null ? "no requests" : "lower of TTFT and ITL" },
  ];
}

function showTiles(state, overviews) {
  const list = state.parts.tiles, tiles = tilesOf(overviews);
  while (list.children.length < tiles.length) {
    const tile = element("div", "tile");
    tile.append(element("dt", "quiet"), element("dd", "value"), element("dd", "quiet"));
    list.append(tile);
  }
  tiles.forEach((tile, place) => {
    const box = list.children[place];
    box.className = `tile ${tile.level || ""}`;
    box.children[0].textContent = tile.label;
    box.children[1].replaceChildren(tile.value, element("span", "quiet", tile.unit));
    box.children[2].textContent = tile.note;
    // A narrow tile cuts its note off.
    box.title = `${tile.note}${tile.more || ""}`;
  });
}

// The servers whose figures are shown: those whose feed goes on, or, if it is lost to all, those that
// sent figures before.
function shownServers(state) {
  const known = [...state.servers.values()].filter((one) => one.overview);
  const present = known.filter((one) => !one.away);
  return present.length ? present : known;
}

function worstServer(state) {
  const order = state.component.data.conditions.map((one) => one.name);
  const shown = [...state.servers.values()].filter((one) => one.overview || one.away);
  return shown.sort((a, b) => (a.away ? -1 : order.indexOf(a.overview.verdict.condition)) -
    (b.away ? -1 : order.indexOf(b.overview.verdict.condition)))[0];
}

function showBand(state) {
  const one = worstServer(state), band = state.parts.band;
  if (!one) return;
  const named = state.servers.size > 1 ? `${one.name}: ` : "";
  let words, sentence, since = "", links = [];
  if (one.away) {
    words = { title: "Unreachable", level: "critical" };
    const shown = shownServers(state);
    const rest = !shown.length ? "" : shown[0].away ? " The numbers below are out of date." :
      " The numbers below are of the other servers.";
    sentence = one.away + rest;
  } else {
    const verdict = one.overview.verdict;
    words = state.component.data.conditions.find((each) => each.name === verdict.condition);
    sentence = untitled(verdict.sentence);
    if (verdict.since && words.level !== "calm")
      since = `for ${sinceWords(one.overview.time - verdict.since)}`;
    if (words.page) links.push([words.page, words.page_title]);
    if (verdict.condition === "kv" && one.overview.largest_holder)
      links.push([`/requests?state=live&key=${encodeURIComponent(one.overview.largest_holder)}`,
        "the largest holder's requests"]);
  }
  band.className = `band ${words.level}`;
  const said = `${one.index}|${named}${words.title}|${sentence}|${links.join()}`;
  if (band.dataset.said !== said) {
    band.dataset.said = said;
    const more = element("span", "more");
    more.append(...links.map(([href, text]) => link(state, about(state, one, href), text)),
      element("span", "since"));
    band.replaceChildren(element("b", "", named + words.title), element("span", "", sentence), more);
  }
  band.querySelector(".since").textContent = since;
}

function showStrip(state) {
  const strip = state.parts.strip;
  strip.hidden = state.servers.size < 2;
  if (strip.hidden) return;
  strip.replaceChildren(...[...state.servers.values()].map((one) => {
    const now = one.overview, line = element("span");
    line.append(element("b", "", one.name), ` ${one.away ? "unreachable" : !now ? "no data yet" :
      `${count(now.running)} running, ${count(now.waiting)} waiting, KV ${
        number(now.kv_blocks_active / ((now.kv_blocks_active + now.kv_blocks_cached +
          now.kv_blocks_free) || 1) * 100)} %, ${number(now.minute.tokens_out)} tok/s${
        clockWords(state, one)}`}`);
    return line;
  }));
}

function showSlowest(state) {
  const live = shownServers(state).flatMap((one) =>
    (one.live || []).map((request) => ({ ...request, server: one })));
  live.sort((a, b) => b.total - a.total);
  const most = live.length ? live[0].total : 1;
  const parts = live.slice(0, 2).map((request) => {
    const line = element("span");
    const done = request.phase === "decode" ?
      ` ${count(request.output_tokens)}${request.max_tokens ? `/${count(request.max_tokens)}` : ""}`
      : request.phase === "prefill" ?
        ` ${count(request.prompt_tokens_computed)}/${count(request.prompt_tokens)}` : "";
    const bar = element("span", "bar"), fill = element("i");
    fill.style.width = `${request.total / (most || 1) * 100}%`;
    bar.append(fill);
    const address = `/request?id=${encodeURIComponent(request.request_id)}`;
    line.append(link(state, about(state, request.server, address), request.request_id.slice(0, 14)),
    ` ${request.key || ""} ${request.phase || ""}${done} ${duration(request.total)}`, bar);
    return line;
  });
  const title = element("b", "", "Slowest now");
  const ended = "/requests?since=5+min&sort=slowest+first", words = "Slowest of the last 5 minutes";
  const servers = [...state.servers.values()];
  state.parts.slowest.replaceChildren(title, ...(parts.length ? parts :
    [element("span", "quiet", "nothing running")]),
  ...(servers.length > 1 ? [element("span", "", `${words}:`)] : []),
  ...servers.map((one) => link(state, about(state, one, ended), servers.length > 1 ? one.name : words)));
}

// --- charts -------------------------------------------------------------------------------------

// How a chart makes one value of those of several servers. Conditions are numbered from the most
// urgent one on.
function joinOf(chart) {
  if (chart.unit === "state") return Math.min;
  return chart.worst ? Math.max : (total, value) => total + value;
}

// Values of a column at the times of the chart, over all servers.
function combined(state, column, join) {
  const { times } = state;
  const all = [...state.servers.values()].map((one) => one.columns[column]).filter(Boolean);
  if (all.length === 1) return all[0];
  return times.map((_, place) => all.reduce((total, values) => {
    const value = values[place];
    if (value === null || value === undefined) return total;
    return total === null ? value : join(total, value);
  }, null));
}

function limitOf(state, name) {
  const known = shownServers(state).map((one) => one.overview);
  const { sum, slo } = figures(known);
  if (!name || !known.length) return null;
  if (name.startsWith("slo.")) return slo(name.slice(4));
  if (name === "kv_blocks")
    return sum((one) => one.kv_blocks_active + one.kv_blocks_cached + one.kv_blocks_free);
  return sum((one) => one[name]);
}

function drawAxes(pen, colors, box, top, unit, state) {
  pen.font = `11px ${colors.font}`;
  pen.fillStyle = colors.text; pen.strokeStyle = colors.line; pen.lineWidth = 1;
  for (const share of [0, 0.5, 1]) {
    const y = Math.round(box.bottom - share * (box.bottom - box.top)) + 0.5;
    pen.beginPath(); pen.moveTo(box.left, y); pen.lineTo(box.right, y); pen.stroke();
    pen.textAlign = "right"; pen.textBaseline = "middle";
    if (unit !== "state") pen.fillText(tick(unit, share * top), box.left - 4, y);
  }
  if (!state.times.length) return;
  pen.textBaseline = "top"; pen.textAlign = "center";
  const ticks = Math.max(2, Math.floor((box.right - box.left) / 110));
  for (let tick = 0; tick < ticks; tick++) {
    const time = state.from + (tick + 0.5) / ticks * (state.until - state.from);
    pen.fillText(clock(time), box.x(time), box.bottom + 2);
  }
}

function drawMarks(pen, colors, box, state) {
  pen.save();
  pen.strokeStyle = colors.text; pen.setLineDash([2, 3]); pen.globalAlpha = 0.6;
  for (const mark of state.marks) {
    if (mark.time < state.from || mark.time > state.until) continue;
    const x = Math.round(box.x(mark.time)) + 0.5;
    pen.beginPath(); pen.moveTo(x, box.top); pen.lineTo(x, box.bottom); pen.stroke();
  }
  pen.restore();
}

function drawStates(pen, box, state, values) {
  const table = state.component.data.conditions;
  state.times.forEach((time, place) => {
    const value = values[place];
    if (value === null || value === undefined || !table[value]) return;
    pen.fillStyle = NAMES[table[value].color];
    const width = Math.max(1, box.x(time + state.step) - box.x(time) + 0.6);
    pen.fillRect(box.x(time), box.top, width, box.bottom - box.top);
  });
}

function drawLines(pen, box, state, chart, series, top) {
  const y = (value) => box.bottom - Math.min(value / top, 1.02) * (box.bottom - box.top);
  const floor = state.times.map(() => 0);
  const drawn = series.map((values, which) => [values, which]);
  // The first line lies on top of the others where they are equal: an idle server is not all red.
  (chart.stacked ? drawn : drawn.reverse()).forEach(([values, which]) => {
    pen.strokeStyle = pen.fillStyle = NAMES[chart.lines[which].color];
    pen.lineWidth = 1.5;
    if (chart.stacked) {
      state.times.forEach((time, place) => {
        const value = values[place];
        if (!value) return;
        const width = Math.max(1, box.x(time + state.step) - box.x(time) + 0.6);
        const low = y(floor[place]), high = y(floor[place] + value);
        pen.fillRect(box.x(time), high, width, low - high);
        floor[place] += value;
      });
      return;
    }
    let drawing = false;
    pen.beginPath();
    state.times.forEach((time, place) => {
      const value = values[place];
      if (value === null || value === undefined) { drawing = false; return; }
      const at = [box.x(time + state.step / 2), y(value)];
      if (drawing) pen.lineTo(...at);
      else { pen.moveTo(...at); pen.lineTo(at[0] + 1.5, at[1]); }
      drawing = true;
    });
    pen.stroke();
  });
}

function showLegend(state, view, chart, series, place) {
  const at = place ?? state.times.length - 1;
  const table = state.component.data.conditions;
  const sum = (values) => values.reduce((total, value) => total + (value || 0), 0);
  let items;
  if (chart.unit === "state") {
    const known = series[0].filter((value) => value !== null && value !== undefined);
    const shares = new Map();
    known.forEach((value) => shares.set(value, (shares.get(value) || 0) + 1));
    items = place !== null && place !== undefined && table[series[0][at]] ?
      [[table[series[0][at]].color, table[series[0][at]].title]] :
      [...shares].sort((a, b) => b[1] - a[1]).filter(([value]) => table[value]).map(([value, n]) =>
        [table[value].color, `${table[value].title} ${number(n / known.length * 100)} %`]);
  } else items = legible(series.map(sum)).map((which) => [chart.lines[which].color,
    `${chart.lines[which].name} ${written(chart.unit, series[which][at])}`]);
  const when = place !== null && place !== undefined ?
    ` ${clock(state.times[at])}, ${sinceWords(state.until - state.times[at])} ago` : "";
  const marks = when ? state.marks.filter((mark) =>
    Math.abs(mark.time - state.times[at]) < state.step * 3).map((mark) => mark.text).join("; ") : "";
  view.legend.replaceChildren(...items.map(([color, text]) => {
    const item = element("span"), box = element("i");
    box.style.background = NAMES[color];
    item.append(box, text);
    return item;
  }), element("span", "quiet", when + (marks ? ` · ${marks}` : "")));
  view.canvas.setAttribute("aria-label", `${chart.title}: ${items.map((item) => item[1]).join(", ")}`);
}

function drawChart(state, view, chart, colors) {
  const width = view.canvas.clientWidth, height = state.chartHeight;
  if (!width) return;
  view.canvas.style.height = `${height}px`;
  const pen = pencil(view.canvas, width, height);
  const series = chart.lines.map((line) => combined(state, line.column, joinOf(chart)) || []);
  const limit = limitOf(state, chart.limit), reach = limitOf(state, chart.top);
  let most = reach || 0;
  state.times.forEach((_, place) => {
    const values = series.map((one) => one[place] || 0);
    most = Math.max(most, chart.stacked ? values.reduce((a, b) => a + b, 0) : Math.max(...values));
  });
  const near = limit && most > limit / 4;
  const high = Math.max(most, near ? limit : 0, chart.unit === "seconds" ? 0.001 : 1);
  const top = chart.unit === "state" ? 1 : reach ? high : roundUp(high);
  const left = chart.unit === "state" ? 4 : 50;
  const box = { left, right: width - 4, top: 5, bottom: height - 16 };
  box.x = (time) => box.left + (time - state.from) / (state.until - state.from || 1) *
    (box.right - box.left);
  view.box = box;
  if (chart.unit === "state") drawStates(pen, box, state, series[0]);
  else drawLines(pen, box, state, chart, series, top);
  drawAxes(pen, colors, box, top, chart.unit, state);
  if (near) {
    const y = box.bottom - limit / top * (box.bottom - box.top);
    pen.strokeStyle = NAMES.amber; pen.setLineDash([5, 4]); pen.lineWidth = 1.5;
    pen.beginPath(); pen.moveTo(box.left, y); pen.lineTo(box.right, y); pen.stroke();
    pen.setLineDash([]);
  }
  drawMarks(pen, colors, box, state);
  const place = state.hover === null ? null :
    Math.min(state.times.length - 1, Math.max(0, Math.floor((state.hover - state.from) / state.step)));
  if (place !== null && state.times.length) {
    const x = Math.round(box.x(state.times[place] + state.step / 2)) + 0.5;
    pen.strokeStyle = colors.text; pen.lineWidth = 1;
    pen.beginPath(); pen.moveTo(x, box.top); pen.lineTo(x, box.bottom); pen.stroke();
  }
  showLegend(state, view, chart, series, place);
}

function drawCharts(state) {
  const colors = theme(state.root);
  state.component.data.charts.forEach((chart, place) =>
    drawChart(state, state.views[place], chart, colors));
}

function layOut(state) {
  const { board, charts } = state.parts;
  const columns = board.clientWidth >= 1500 ? 4 : board.clientWidth >= 640 ? 2 : 1;
  charts.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  const rows = Math.ceil(state.views.length / columns);
  // What is left of the window, so that nothing has to be scrolled.
  const others = [...board.children].filter((one) => one !== charts && !one.hidden)
    .reduce((total, one) => total + one.offsetHeight + 6, 0);
  const room = window.innerHeight - state.component.data.above - others;
  state.chartHeight = Math.max(columns === 1 ? 110 : 62, Math.floor(room / rows) - 6 - 25);
}

// --- time ---------------------------------------------------------------------------------------

// Notes by how much a server's clock is ahead of the browser's: its messages say, apart from the
// time that they took to arrive. All servers are drawn on the clock of the one whose message came
// first.
function noteClock(state, server, now) {
  const ahead = server.overview.time - now / 1000;
  if (server.ahead === undefined || ahead > server.ahead - CLOCK_SECONDS) {
    server.ahead = Math.max(ahead, server.ahead ?? ahead);
    server.late = null;
  } else if (now - (server.late ??= now) > LATE_SECONDS * 1000) {
    server.ahead = ahead;
    server.late = null;
  }
  state.first ??= server;
  if (server === state.first && state.times.length &&
    server.overview.time < state.times.at(-1) - LATE_SECONDS) { // set back: begin anew
    state.times = [];
    state.marks = [];
    refill(state, state.servers.values());
  }
  const apart = Math.round(server.ahead - state.first.ahead);
  const offset = Math.abs(apart) > CLOCK_SECONDS ? apart : 0;
  if (offset === server.offset) return;
  const known = server.offset !== undefined;
  server.offset = offset;
  if (known) {
    server.columns = {};
    state.marks = state.marks.filter((one) => one.server !== server);
    refill(state, [server]);
  } else if (server.history) adopt(state, server);
}

function clockWords(state, server) {
  const { offset } = server;
  return offset ? `, its clock is ${sinceWords(Math.abs(offset))} ${
    offset > 0 ? "ahead of" : "behind"} ${state.first.name}'s` : "";
}

// Fills the columns of these servers with what each of them remembers.
function refill(state, servers) {
  const { minutes, history, token } = state.component.data;
  state.minutes = minutes;
  for (const server of servers) {
    if (server.absent) continue;
    fetched(`${history}/${server.index}/${minutes}?token=${token}`)
      .then((reply) => {
        if (reply.ok) return reply.json();
        renew(state); // the next time it is read with the new one
        return null;
      })
      .then((found) => {
        if (!found || state.closed || state.minutes !== minutes) return;
        // What could not be fetched is tried again.
        server.missed = server.missed && !Object.keys(found.values).length;
        server.history = found;
        if (server.offset !== undefined) adopt(state, server);
      }).catch(() => {});
  }
}

// Reads the history again where that failed, and where a step is longer than the feed's second.
function catchUp(state) {
  refill(state, [...state.servers.values()].filter((one) => one.missed || state.minutes > 5));
}

function adopt(state, server) {
  const found = server.history;
  state.step = { 5: 1, 15: 3, 60: 12 }[state.minutes];
  const length = state.minutes * 60 / state.step;
  const last = Object.values(found.values)[0]?.length || 0;
  const until = found.start + last * found.step - server.offset;
  if (!state.times.length || state.times.step !== state.step) {
    const end = last ? until : server.overview.time - server.offset;
    state.times = Array.from({ length }, (_, place) => end - (length - place) * state.step);
    state.times.step = state.step;
    for (const one of state.servers.values()) one.columns = {};
  }
  const shift = Math.round((until - (state.times.at(-1) + state.step)) / state.step);
  for (const [name, values] of Object.entries(found.values)) {
    // What only the feed has, its newest second and what came before a restart, stays.
    const column = server.columns[name] || new Array(length).fill(null);
    values.forEach((value, place) => {
      const at = length - values.length + place + shift;
      if (at >= 0 && at < length) column[at] = value ?? column[at];
    });
    server.columns[name] = column;
  }
  for (const mark of found.marks) addMark(state, server, mark);
  spread(state);
}

function addMark(state, server, { time: own, text }) {
  const time = own - server.offset;
  if (!state.marks.some((one) => one.time === time && one.text === text))
    state.marks.push({ time, text, server });
}

function spread(state) {
  if (!state.times.length) return;
  state.from = state.times[0];
  state.until = state.times.at(-1) + state.step;
}

// Puts the newest second into its place; a step that is longer keeps its newest second until the
// history is read again.
function append(state, server, time, sample) {
  if (!state.times.length) return;
  while (time >= state.times.at(-1) + state.step) {
    state.times.push(state.times.at(-1) + state.step);
    state.times.shift();
    for (const one of state.servers.values())
      for (const column of Object.values(one.columns)) { column.push(null); column.shift(); }
  }
  const length = state.times.length;
  const place = Math.floor((time - state.times[0]) / state.step);
  if (place < 0 || place >= length) return;
  for (const [name, value] of Object.entries(sample)) {
    if (!server.columns[name]) server.columns[name] = new Array(length).fill(null);
    server.columns[name][place] = value;
  }
  spread(state);
}

function onFrame(state, server, frame) {
  if (frame.away !== undefined) { server.away = frame.away; show(state); return; }
  const now = performance.now();
  const missed = server.away || (server.arrived && now - server.arrived > STALE_SECONDS * 1000);
  server.away = null;
  server.arrived = now;
  if (frame.overview) { server.overview = frame.overview; noteClock(state, server, now); }
  if (frame.live) server.live = frame.live;
  if (server.overview) {
    for (const mark of frame.marks || []) addMark(state, server, mark);
    // The sample is of the second that has just ended.
    const ended = server.overview.time - server.offset - 1;
    if (frame.sample) append(state, server, ended, frame.sample);
  }
  if (missed) { server.missed = true; refill(state, [server]); } // catchUp tries again
  show(state);
}

function show(state) {
  const known = shownServers(state).map((one) => one.overview);
  showBand(state);
  showStrip(state);
  if (known.length) { showTiles(state, known); showSlowest(state); }
  showAge(state);
  layOut(state);
  drawCharts(state);
}

function showAge(state) {
  const servers = shownServers(state);
  const ages = servers.map((one) => (performance.now() - one.arrived) / 1000);
  const age = Math.max(...ages);
  const newest = servers.map((one) => one.overview.time - one.offset);
  const paused = servers.some((one) => isPaused(state, one.arrived));
  state.parts.age.textContent = !servers.length ? "no data yet" : `${clock(Math.max(...newest))} · ${
    paused ? "paused" : `${age < 10 ? age.toFixed(1) : age.toFixed(0)} s old`}`;
  state.parts.board.classList.toggle("old",
    (age > STALE_SECONDS && !paused) || servers.some((one) => one.away));
}

function build(state) {
  const board = element("div", "board"), band = element("div", "band");
  const tiles = element("dl", "tiles"), strip = element("div", "strip");
  const charts = element("div", "charts"), slowest = element("div", "slowest");
  const age = element("span", "age quiet");
  band.setAttribute("role", "status");
  strip.hidden = true;
  band.append(element("b", "", "Reading"), element("span", "", "The first figures are on their way."));
  state.views = state.component.data.charts.map((chart) => {
    const box = element("div", "chart"), head = element("div", "head");
    const canvas = element("canvas"), legend = element("span", "legend");
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", chart.title);
    head.append(element("h3", "", chart.title), legend);
    box.append(head, canvas);
    charts.append(box);
    const view = { canvas, legend };
    listen(state, view);
    return view;
  });
  board.append(band, tiles, strip, charts, slowest, age);
  board.style.position = "relative";
  state.parts = { board, band, tiles, strip, charts, slowest, age };
  state.root.append(board);
}

function listen(state, view) {
  const move = (time) => { state.hover = time; drawCharts(state); };
  view.canvas.addEventListener("pointermove", (event) => {
    const { box } = view;
    if (!box) return;
    const share = (event.offsetX - box.left) / (box.right - box.left);
    move(state.from + Math.min(1, Math.max(0, share)) * (state.until - state.from));
  });
  view.canvas.addEventListener("pointerleave", () => move(null));
  view.canvas.addEventListener("blur", () => move(null));
  view.canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (event.key === "Escape") move(null);
    if (!steps) return;
    event.preventDefault();
    const now = state.hover ?? state.until;
    move(Math.min(state.until - state.step / 2, Math.max(state.from, now + steps * state.step)));
  });
}

function close(state) {
  state.closed = true;
  state.source.close();
  clearInterval(state.timer);
  clearInterval(state.refills);
  state.resize.disconnect();
  state.parts.board.remove();
  delete state.root.quire;
}

export default function (component) {
  const root = component.parentElement;
  const { data } = component;
  let state = root.quire;
  if (!state || state.names !== JSON.stringify(data.servers)) {
    if (state) close(state);
    state = root.quire = { root, component, names: JSON.stringify(data.servers), times: [], marks: [],
      hover: null, from: 0, until: 1, step: 1, chartHeight: 90,
      // Those that were away when the page was drawn are not in the feed.
      servers: new Map(data.servers.map((one) => [one.index, { ...one, absent: !!one.away, columns: {} }])) };
    build(state);
    state.resize = new ResizeObserver(() => { layOut(state); drawCharts(state); });
    state.resize.observe(state.parts.board);
    state.onFrame = (server, frame) => onFrame(state, state.servers.get(server.index), frame);
    state.timer = setInterval(() => { restFeed(state); watchFeed(state); showAge(state); }, 250);
    state.refills = setInterval(() => {
      if (!state.resting) catchUp(state);
      if (!state.resting && data.servers.some((one) => one.away)) renew(state);
      renewInTime(state);
    }, 15000);
  }
  noteToken(state, data.token);
  state.component = component;
  state.closed = false;
  if (state.minutes !== data.minutes) { state.times = []; refill(state, state.servers.values()); }
  follow(state);
  return () => close(state);
}
