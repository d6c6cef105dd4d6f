"""The drawings' own code, run by Node: numbers as the rest of the dashboard writes them."""

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess
from dataclasses import asdict
from typing import Any, cast

import pytest

from dashboard import components
from dashboard.board import BOARD
from dashboard.words import count, duration, number
from observability.admin_api import Condition

NODE = shutil.which("node")

_RUN = """
const values = JSON.parse(require("fs").readFileSync(0));
console.log(JSON.stringify(values.map((v) => [number(v), count(v), duration(v)])));
"""


def evaluated(expressions: list[str], *drawings: str) -> list[object]:
    """``drawings``: whose code they need besides the common one."""
    code = "".join(components._text(name) for name in ("common.js", *drawings))
    code = code.replace("export default function", "void function")  # only a module exports
    script = code + f"console.log(JSON.stringify([{','.join(expressions)}]))"
    assert NODE is not None
    reply = subprocess.run([NODE, "-e", script], capture_output=True, text=True, check=True)
    return list(json.loads(reply.stdout))


# A page's feed with its clock, for scripts that end with what they return.
_FEED = """(() => {
  const made = [];
  let now = 0;
  globalThis.EventSource = class {
    static CLOSED = 2;
    constructor(url) { Object.assign(this, { url, readyState: 1, on: {} }); made.push(this); }
    addEventListener(name, then) { this.on[name] = then; }
    close() { this.readyState = 2; }
  };
  Object.defineProperty(globalThis, "performance", { value: { now: () => now } });
  globalThis.document = { hidden: false };
  const frames = [], data = { feed: "/feed/0", token: "t", servers: [{ index: 0 }] };
  const state = { component: { data }, onFrame: (server, frame) => frames.push(frame) };
  const isOpen = () => made.map((one) => one.readyState === 1);
  follow(state);
"""


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_a_feed_from_which_nothing_comes_is_opened_again() -> None:
    script = """
      now = 9000; watchFeed(state); made[0].on.s0({ data: "1" });
      now = 18000; watchFeed(state); made[0].on.alive({ data: "2" });
      now = 27000; watchFeed(state);
      const before = isOpen();
      now = 28000; document.hidden = true; watchFeed(state);
      const hidden = isOpen();
      document.hidden = false; watchFeed(state);
      return [before, hidden, isOpen(), frames];
    })()"""
    (found,) = evaluated([_FEED + script])
    assert found == [[True], [True], [False, True], [1]]


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_the_feed_of_a_page_that_is_not_seen_is_closed_until_it_is() -> None:
    script = """
      const tick = (time, hidden) => {
        now = time;
        document.hidden = hidden;
        const woken = restFeed(state);
        watchFeed(state);
        data.token = `of ${time}`;
        return [woken, isOpen(), isPaused(state, 500)];
      };
      return [tick(1000, true), tick(10000, true), tick(11000, true), follow(state),
        tick(90000, true), tick(91000, false), made.at(-1).url, tick(95000, false),
        tick(96000, false), isPaused(state, 91001)];
    })()"""
    (found,) = evaluated([_FEED + script])
    assert found == [
        [False, [True], False],
        [False, [True], False],
        [False, [False], True],
        None,  # the page is drawn again, with another token
        [False, [False], True],
        [True, [False, True], True],
        "/feed/0?token=of 90000",
        [False, [False, True], True],
        [False, [False, True], False],  # nothing has come: that is a fault
        False,
    ]


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_an_axis_ends_at_a_round_number_written_without_needless_zeros() -> None:
    assert evaluated(["roundUp(1)", "roundUp(18113)", "roundUp(0.0021)", "roundUp(0)"]) == [
        1,
        20_000,
        pytest.approx(0.003),
        0,
    ]
    texts = ["0", "1.00", "0.500", "2.50 ms", "20,000", "100 ms", "10.0 s", "0.042 ms"]
    assert evaluated([f'plainly("{text}")' for text in texts]) == [
        *("0", "1", "0.5", "2.5 ms", "20,000", "100 ms", "10 s", "0.042 ms")
    ]


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_a_verdict_does_not_say_its_title_twice() -> None:
    silent = "Engine silent for 9.00 s with 3 sequences in flight: it hangs."
    sentences = ["Idle: no request for 9 s.", "KV cache: 9 of 9 blocks.", silent, ""]
    assert evaluated([f"untitled({json.dumps(each)})" for each in sentences]) == [
        *("No request for 9 s.", "9 of 9 blocks.", silent, "")
    ]


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_numbers_are_written_as_in_words() -> None:
    chance = random.Random(7)
    values = [
        0.0,
        1.0,
        999.4,
        999.5,
        0.9994,
        0.9995,
        0.9996,
        9.995,
        1234.5,
        0.0012345,
        102.5,
        1005.0,
    ]
    values += [math.exp(chance.uniform(-7, 14)) for _ in range(500)]
    values += [round(value, 1) for value in values]
    script = components._text("common.js") + _RUN
    assert NODE is not None
    reply = subprocess.run(
        [NODE, "-e", script], input=json.dumps(values), capture_output=True, text=True, check=True
    )
    for value, written in zip(values, json.loads(reply.stdout), strict=True):
        assert written == [number(value), count(value), duration(value)], value


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_a_crowded_legend_begins_with_what_takes_most() -> None:
    """Decode is the last phase: it was what a narrow chart cut off."""
    assert evaluated(["legible([3, 0.01, 1, 0, 2, 50])", "legible([1, 0, 2])"]) == [
        [5, 0, 4, 2],
        [0, 1, 2],
    ]


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_the_middle_of_an_axis_is_half_of_its_end() -> None:
    ticks = ['tick("count", 2.5)', 'tick("count", 5)', 'tick("rate", 0.5)', 'tick("seconds", 0.05)']
    assert evaluated(ticks) == ["2.5", "5", "0.5", "50 ms"]


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_bars_of_a_kv_map_are_its_runs_block_by_block() -> None:
    chance = random.Random(3)
    for _ in range(20):
        runs = [
            [chance.randint(-2, 1), chance.randint(1, 400), chance.random() < 0.5]
            for _ in range(chance.randint(0, 20))
        ]
        (found,) = evaluated([f"bars({json.dumps(runs)})"], "kvmap.js")
        drawn: dict[int, tuple[int, bool]] = {}
        for bar in cast(list[Any], found):
            assert bar["column"] + bar["width"] <= 128
            for column in range(bar["column"], bar["column"] + bar["width"]):
                place = bar["row"] * 128 + column
                assert place not in drawn
                drawn[place] = bar["owner"], bar["shared"]
        expected = [(owner, shared) for owner, blocks, shared in runs for _ in range(blocks)]
        assert [drawn[place] for place in range(len(expected))] == expected
        assert len(drawn) == len(expected)


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_of_several_servers_a_chart_has_the_sum_or_the_worst() -> None:
    silent, healthy = (
        list(Condition).index(each) for each in (Condition.SILENT, Condition.HEALTHY)
    )
    columns = [[healthy, 1, None], [silent, 2, None]]
    servers = ",".join(
        f"[{index}, {{columns: {{c: {json.dumps(one)}}}}}]" for index, one in enumerate(columns)
    )
    state = f"{{times: [1, 2, 3], servers: new Map([{servers}])}}"
    charts = {chart.title: json.dumps(asdict(chart)) for chart in BOARD}

    def shown(title: str) -> object:
        (values,) = evaluated([f"combined({state}, 'c', joinOf({charts[title]}))"], "board.js")
        return values

    assert shown("What limited the server") == [silent, 1, None]
    assert shown("First token") == [healthy, 2, None]
    assert shown("Sequences") == [silent + healthy, 3, None]


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_two_refused_requests_of_a_quiet_minute_do_not_colour_the_tile() -> None:
    cases = {
        "levelOfRequests(2 / 60, 2 / 60, 0)": "",
        "levelOfRequests(3 / 60, 3 / 60, 0)": "critical",
        "levelOfRequests(100 / 60, 3 / 60, 0)": "warning",
        "levelOfRequests(2 / 60, 0, 1 / 60)": "critical",
        "levelOfRequests(0, 0, 0)": "",
    }
    assert evaluated(list(cases), "board.js") == list(cases.values())


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_the_history_of_a_server_is_read_once_for_the_seconds_that_it_missed() -> None:
    """As when a tab is seen again: all servers have missed some. What failed is read again."""
    script = """
      const read = [], server = (index) => ({ index, arrived: 1, columns: {} });
      show = () => {};
      fetch = (address) => { read.push(address); return new Promise(() => {}); };
      const servers = [0, 1, 2].map((index) => [index, server(index)]);
      Object.assign(state, { servers: new Map(servers), marks: [], minutes: 5 });
      Object.assign(data, { minutes: 5, history: "/h" });
      const since = (then) => { read.length = 0; then(); return read.slice(); };
      const frame = () => { for (const one of state.servers.values()) onFrame(state, one, {}); };
      now = 60000;
      const seen = since(frame);
      now = 61000;
      state.servers.get(0).missed = state.servers.get(2).missed = false;
      const found = [seen, since(frame), since(() => catchUp(state))];
      state.minutes = data.minutes = 15;
      return [...found, since(() => catchUp(state))];
    })()"""
    (found,) = evaluated([_FEED + script], "board.js")

    def read(minutes: int, *indices: int) -> list[str]:
        return [f"/h/{index}/{minutes}?token=t" for index in indices]

    assert found == [read(5, 0, 1, 2), [], read(5, 1), read(15, 0, 1, 2)]


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_a_kv_map_s_age_is_by_the_server_s_clock() -> None:
    """And grows where no other map comes."""
    script = """
      Date.now = () => 0; // the browser's clock is wrong
      const said = [], map = { at: null, away: "", arrived: 0 };
      map.newest = { time: 9000 };
      map.shown = { time: 8940 };
      for (now of [0, 4000, 9000]) said.push(whenWords(map)[0]);
      said.push(whenWords({ ...map, newest: undefined })[0]);
      said.push(whenWords({ ...map, away: "Gone." })[0]);
      said.push(whenWords({ ...map, at: 8940 })[0].split(", ")[1], serverNow(map));
      return said;
    })()"""
    (found,) = evaluated([_FEED + script], "kvmap.js")
    assert found == [
        *("now", "now", "The newest map is 9 s old."),
        *("", "Gone.", "1 min 9 s ago", 9009),
    ]


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_a_request_keeps_its_color() -> None:
    names = ["req_a", "req_a", *(f"req_{number}" for number in range(100))]
    colors = evaluated([f'colorOf("{name}")' for name in names], "kvmap.js")
    assert colors[0] == colors[1]
    assert len(set(colors)) == 8


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_a_prefix_comes_after_the_one_that_it_continues() -> None:
    prefixes = [{"parent": parent} for parent in (None, None, 0, 2)]
    (found,) = evaluated([f"inOrder({json.dumps(prefixes)})"], "kvmap.js")
    assert found == [[0, 0], [2, 1], [3, 2], [1, 0]]
