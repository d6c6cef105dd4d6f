// What the four drawings share: numbers as words.py writes them, colours, and the feed.
const UNKNOWN = "–";
const NAMES = { teal: "#0d9488", indigo: "#6366f1", grey: "#8291a5", amber: "#d97706",
  red: "#e11d48", lightblue: "#5bb0e4", blue: "#1d8fd1", deepblue: "#4a62c8" };

// Exact ties go to the even neighbour and no other, as Python's format does it: toPrecision rounds
// ties up, and whether a value is a tie shows in its exact decimal digits.
function rounded(value, digits) {
  if (!value) return value;
  const text = value.toPrecision(digits), lower = value.toPrecision(25);
  const [mantissa] = lower.split("e"), plain = mantissa.replace(/[-.]/g, "").replace(/^0+/, "");
  const tie = plain[digits] === "5" && /^0*$/.test(plain.slice(digits + 1));
  if (!tie || Number(plain[digits - 1]) % 2) return Number(text);
  const unit = Math.pow(10, Math.floor(Math.log10(Math.abs(value))) - digits + 1);
  return Number((Number(text) - Math.sign(value) * unit).toPrecision(digits));
}

// With thousands separated. A tie goes to the even neighbour.
function fixed(value, places) {
  let text = value.toFixed(places);
  const scaled = value * Math.pow(10, places), floor = Math.floor(scaled);
  if (Number.isInteger(value * 16) && scaled - floor === 0.5) text = ((floor % 2 ? floor + 1 : floor) /
    Math.pow(10, places)).toFixed(places);
  const [whole, part] = text.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return part ? `${grouped}.${part}` : grouped;
}

function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return UNKNOWN;
  if (value === 0) return "0";
  const short = rounded(value, digits);
  const decimals = digits - 1 - Math.floor(Math.log10(Math.abs(short)) + 1e-12);
  const places = Math.min(Math.max(decimals, 0), 3);
  const shown = decimals >= 0 ? short : value;
  return fixed(shown, places);
}

function count(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return UNKNOWN;
  return fixed(value, 0);
}

// A length of time as [number, unit].
function lasting(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return [UNKNOWN, ""];
  return rounded(seconds, 3) < 1 ? [number(seconds * 1000), "ms"] : [number(seconds), "s"];
}

function duration(seconds) {
  return lasting(seconds).join(" ").trim();
}

// The end of an axis: the next round number, so that its middle is one, too.
function roundUp(value) {
  if (!(value > 0)) return value;
  const unit = Math.pow(10, Math.floor(Math.log10(value)));
  return [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10].find((step) => step * unit >= value * 0.999999) * unit;
}

// A verdict's sentence without its own title: another one stands beside it.
function untitled(sentence) {
  const rest = sentence.replace(/^[A-Z][A-Za-z ]{0,20}: /, "");
  return rest.charAt(0).toUpperCase() + rest.slice(1);
}

// Without zeros that say nothing: 1, 0.5, 2.5 ms.
function plainly(written) {
  return written.replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, "");
}

function sinceWords(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const hours = Math.floor(whole / 3600);
  if (hours < 24) return `${hours} h ${Math.floor(whole / 60) % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

function clock(epoch) {
  return new Date(epoch * 1000).toLocaleTimeString("en-GB");
}

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function theme(root) {
  const css = getComputedStyle(root.host || root);
  const read = (name, otherwise) => css.getPropertyValue(name).trim() || otherwise;
  return { text: read("--st-text-color", "#1b2a2f"), back: read("--st-background-color", "#fff"),
    soft: read("--st-secondary-background-color", "#f4f6f6"),
    line: read("--st-border-color", "#dfe5e6"), font: read("--st-font", "sans-serif") };
}

// A canvas context in CSS pixels, cleared.
function pencil(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

// The address of a page about one server, whose name it needs where there are several.
function about(state, server, href) {
  if (!state.component.data.several) return href;
  return `${href}${href.includes("?") ? "&" : "?"}server=${encodeURIComponent(server.name)}`;
}

// A link that Streamlit follows without loading the page again; a middle click opens a tab.
function link(state, href, text) {
  if (!state.component.data.pages.includes(href.split("?")[0].slice(1)))
    return element("span", "", text);
  const made = element("a", "", text);
  made.href = href;
  made.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    state.component.setTriggerValue("go", href);
  });
  return made;
}

const FEED_RETRY_MS = 3000; // as browsers do where a server does not answer
const FEED_SILENT_MS = 10000; // in which two signs of life would have come (fanout.py)
const FEED_HIDDEN_MS = 10000;
const FEED_WAKE_MS = 5000; // for the first message, where the token has expired, too

// Keeps one EventSource open, with the newest token: the feed ends when the one that it was opened
// with expires. Asks the page for a new token when the old one is refused.
function follow(state) {
  const { data } = state.component;
  if (state.resting) return;
  if (state.source && state.source.readyState !== EventSource.CLOSED &&
      state.opened === `${data.feed}?token=${data.token}`) return;
  if (state.source) state.source.close();
  state.opened = `${data.feed}?token=${data.token}`;
  const source = new EventSource(state.opened);
  state.source = source;
  const hear = () => { if (state.source === source) state.heard = performance.now(); };
  hear();
  source.onopen = hear;
  source.addEventListener("alive", hear);
  for (const server of data.servers)
    source.addEventListener(`s${server.index}`, (event) => {
      hear();
      state.onFrame(server, JSON.parse(event.data));
    });
  source.onerror = () => {
    if (source.readyState !== EventSource.CLOSED) return;
    renew(state);
    // The page may not be drawn again: what it is asked while its own connection is away is lost.
    setTimeout(() => { if (!state.closed) follow(state); }, FEED_RETRY_MS);
  };
}

// Closes the feed of a page that is not seen: HTTP/1.1 allows six connections to a host, and the
// feeds of six tabs would leave none for a seventh. Returns whether it is opened again, since the
// page is seen.
function restFeed(state) {
  const now = performance.now();
  state.hiddenSince = document.hidden ? state.hiddenSince ?? now : null;
  if (!document.hidden && state.resting) {
    state.resting = false;
    state.woken = now;
    follow(state);
    return true;
  }
  if (document.hidden && !state.resting && now - state.hiddenSince >= FEED_HIDDEN_MS) {
    state.resting = true;
    state.source.close();
  }
  return false;
}

// Whether what arrived then is old because the page was not seen, and not by a fault.
function isPaused(state, arrived) {
  return Boolean(state.resting) ||
    (arrived < state.woken && performance.now() - state.woken < FEED_WAKE_MS);
}

// Opens the feed again where nothing has come for long: a connection whose other end is gone without
// a word, as after a change of the network, stays open for ever.
function watchFeed(state) {
  if (document.hidden || state.source.readyState === EventSource.CLOSED ||
      performance.now() - state.heard < FEED_SILENT_MS) return;
  state.source.close();
  follow(state);
}

// Ends in time on such a connection, too.
function fetched(address) {
  return fetch(address, { signal: AbortSignal.timeout(FEED_SILENT_MS) });
}

// Asks the page for a new token, at most once a second.
function renew(state) {
  if (state.renewal) return;
  state.renewal = setTimeout(() => {
    state.renewal = null;
    if (!state.closed) state.component.setTriggerValue("renew", Date.now());
  }, 1000);
}

const TOKEN_MS = 200000; // of the 240 s and more for which a token is valid (feed_token.py)

// Before the page has it as its component's.
function noteToken(state, token) {
  if (state.component.data.token !== token || !state.tokenSince) state.tokenSince = performance.now();
}

// Asks for a new token before the one that the page has expires.
function renewInTime(state) {
  if (performance.now() - state.tokenSince > TOKEN_MS) renew(state);
}

// Which lines of a chart its legend names. Of many, those that are more than a hundredth of what is
// drawn, the largest first: there may be no room for the last ones.
function legible(sums) {
  const lines = sums.map((sum, which) => which);
  const all = sums.reduce((total, sum) => total + sum, 0);
  return sums.length < 6 ? lines :
    lines.filter((which) => sums[which] > all / 100).sort((a, b) => sums[b] - sums[a]);
}

function written(unit, value) {
  if (value === null || value === undefined) return UNKNOWN;
  return unit === "seconds" ? duration(value) : unit === "count" ? count(value) : number(value);
}

// What an axis has beside a line: half of five sequences is not two.
function tick(unit, value) {
  return plainly(written(unit === "count" && value % 1 ? "rate" : unit, value));
}
