"""What a visitor does in the playground, in Chromium, against a simulated engine whose answers
the test chooses."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dashboard.words import duration, number
from tests.dashboard.accessible import AXE, ours, violations
from tests.dashboard.running import IN_CHROMIUM, PATIENCE_MS, dashboard_of
from tests.e2e.quire_server import QuireServer, free_port, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")

pytestmark = IN_CHROMIUM

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
CALLS = f"{CALL}\n{CALL.replace('Oslo', 'Rome')}"
CODE = r"""Do it:

- [ ] write
- [x] test

1. First

   ```bash
   echo $HOME # x
   ```

```python
@cached
def f(x=3):
    return 'a'
```

```json
{"a": [true, 1, "x"]}
```

\[
x = \frac{a}{b}
\]

One
line after another.

> A quotation.

COLONS"""
COLONS = (
    "An array:int[10] of std::string, {:tada:} :material/home: :streamlit: color:red :x[y]{z} "
    "http://localhost/a:b at 12:30."
)
SCRIPT = (
    {"when": "Code", "reply": CODE.replace("COLONS", f"{COLONS}\n\n::line")},
    {"when": "Think long", "reply": f"<think>\n{'I wonder. ' * 4_000}\n</think>\n\nIt is."},
    {"when": "Think first", "reply": f"<think>\n{'I wonder. ' * 40}\n</think>\n\nIt is $x^2$."},
    {"when": "Call twice", "count": "<tool_response>", "replies": [CALLS, "Sun.", "In both."]},
    {"when": "Call none", "reply": "I cannot know."},
    {"when": "Weather", "count": "<tool_response>", "replies": [CALL, "It rains in Oslo."]},
    {"when": "Two colours", "unless": "Be blue", "reply": "The red fox runs."},
    {"when": "Two colours", "reply": "The blue fox runs."},
    {"when": "Long", "reply": "word " * 4_000},
    {"reply": "Hello there."},
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuireServer]:
    script = tmp_path_factory.mktemp("script") / "replies.jsonl"
    script.write_text("\n".join(map(json.dumps, SCRIPT)))
    with QuireServer(f"simulated:fast,script={script}") as running:
        yield running


@pytest.fixture(scope="module")
def dashboard(server: QuireServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with dashboard_of(server.url, tmp_path_factory.mktemp("dashboard") / "log") as url:
        yield url


@pytest.fixture
def said() -> list[str]:
    """What the browser's console reports of our page."""
    return []


@pytest.fixture
def page(browser: Browser, dashboard: str, said: list[str]) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.on("console", lambda message: said.extend(ours(message)))
    page.goto(f"{dashboard}/playground")
    page.get_by_test_id("stChatInputTextArea").wait_for()
    yield page
    context.close()


def ask(page: Page, question: str, answers: int = 1) -> Locator:
    """The figures below the answers."""
    page.wait_for_load_state("networkidle")
    figures = page.get_by_text("finish:")
    before = figures.count()
    field = page.get_by_test_id("stChatInputTextArea")
    field.fill(question)
    field.press("Enter")
    figures.nth(before + answers - 1).wait_for()
    page.get_by_role("button", name="Regenerate").wait_for()
    return figures.last


def choose(page: Page, label: str, option: str) -> None:
    page.get_by_role("combobox", name=label).first.click()
    page.get_by_role("option", name=option, exact=True).click()
    page.wait_for_load_state("networkidle")


def open_more(page: Page) -> None:
    page.get_by_text("More", exact=True).first.click()


def lines(server: QuireServer, route: str) -> list[dict[str, Any]]:
    return [line for line in server.log_lines() if line.get("route") == route]


@pytest.mark.parametrize(
    ("api", "route", "finish"),
    [
        ("Chat completions", "chat_completions", "stop"),
        ("Responses", "responses", "completed"),
        ("Messages", "messages", "end_turn"),
        ("Completions", "completions", "stop"),
    ],
)
def test_each_api_answers_with_the_figures_of_the_servers_log_line(
    page: Page, server: QuireServer, said: list[str], api: str, route: str, finish: str
) -> None:
    choose(page, "API", api)
    before = len(lines(server, route))
    shown = ask(page, "Hello").inner_text()
    line = until(lambda: lines(server, route)[before:], 30, "the request's log line")[0]
    assert page.get_by_text("Hello there.").count() == 1
    assert f"queue {duration(line['queue_ms'] / 1000)} " in shown
    assert f"first token {duration(line['ttft_ms'] / 1000)} " in shown
    assert f"{line['prompt_tokens']} prompt tokens ({line['cached_tokens']} cached)" in shown
    assert f"{line['output_tokens']} output tokens" in shown
    assert shown.endswith(f"finish: {finish}")
    assert said == []


def test_embeddings_and_ranking_are_refused_in_the_servers_words(page: Page) -> None:
    choose(page, "API", "Embeddings")
    field = page.get_by_test_id("stChatInputTextArea")
    playwright.expect(field).to_have_attribute("placeholder", "Texts, one per line")
    field.fill("one")
    field.press("Enter")
    page.get_by_text("The server refused (400)").wait_for()
    choose(page, "API", "Rerank")
    page.get_by_text("Enter at least one document.").first.wait_for()


def begin_an_answer_without_end(page: Page, question: str) -> None:
    field = page.get_by_test_id("stChatInputTextArea")
    most = page.get_by_role("spinbutton", name="Max tokens")
    most.fill("100000")
    most.press("Enter")
    page.wait_for_load_state("networkidle")
    field.fill(question)
    field.press("Enter")


def test_reasoning_is_open_while_it_grows(page: Page) -> None:
    slow = page.context.new_cdp_session(page)  # as a browser that sees several updates at once
    slow.send("Emulation.setCPUThrottlingRate", {"rate": 8})
    begin_an_answer_without_end(page, "Think long")
    page.get_by_text("I wonder.").first.wait_for(state="visible")
    page.get_by_test_id("stExpanderIconSpinner").wait_for()  # it still grows
    slow.send("Emulation.setCPUThrottlingRate", {"rate": 1})
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_text("stopped early").first.wait_for()


def test_reasoning_is_folded_after_with_the_servers_time(page: Page) -> None:
    ask(page, "Think first")
    page.get_by_text(re.compile(r"Reasoned for [\d.]+ m?s")).wait_for()
    assert not page.get_by_text("I wonder.").first.is_visible()
    page.locator(".katex").wait_for()  # drawn as a formula


def test_an_answer_is_shown_as_it_was_written(page: Page) -> None:
    ask(page, "Code")
    page.locator(".stCode .token").first.wait_for()
    answer = page.get_by_test_id("stChatMessageContent").nth(1)
    code = answer.get_by_test_id("stCode").first.inner_text()
    assert code.strip() == "echo $HOME # x"
    assert answer.locator(".katex").count() == 1
    answer.get_by_text("One\nline after another.", exact=True).wait_for()
    # Nothing is a directive, an emoji or an icon of Streamlit's.
    answer.get_by_text(COLONS, exact=True).wait_for()
    answer.get_by_text("::line", exact=True).wait_for()


def test_figures_grow_with_the_answer_and_it_can_be_stopped(
    page: Page, server: QuireServer
) -> None:
    begin_an_answer_without_end(page, "Long")
    page.get_by_text(re.compile(r"first token .* tok/s · [\d,]+ output tokens so far")).wait_for()
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_text("stopped early").first.wait_for()
    until(lambda: server.total("quire_sequences_running") == 0, 30, "the abort")


def test_a_tool_is_called_and_gets_its_result(page: Page) -> None:
    open_more(page)
    choose(page, "Preset", "Call a tool")
    tools = page.get_by_role("textbox", name="Tools (JSON)")
    playwright.expect(tools).to_have_value(re.compile("get_weather"))
    ask(page, "Weather?")
    page.get_by_role("textbox", name="Result of get_weather").fill("rain, 4 degrees")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Send the results").click()
    page.get_by_text("It rains in Oslo.").first.wait_for()
    page.get_by_role("button", name="Regenerate").wait_for()
    assert page.get_by_role("button", name="Send the results").count() == 0


def two_panes_with_tools(page: Page, **systems: str) -> None:
    """Opens two panes that offer the same tool. ``systems``: their system prompts."""
    page.get_by_text("Two panes", exact=True).click()
    for pane in "AB":
        page.get_by_role("tab", name=f"Pane {pane}").click()
        panel = page.get_by_role("tabpanel", name=f"Pane {pane}")
        system = panel.get_by_role("textbox", name="System prompt")
        system.fill(systems.get(pane, ""))
        system.press("Control+Enter")
        panel.get_by_text("More", exact=True).click()
        option = page.get_by_role("option", name="Call a tool", exact=True)
        for _ in range(10):  # the list closes again if the panel still grows when it opens
            panel.get_by_role("combobox", name="Preset").click()
            with contextlib.suppress(playwright.TimeoutError):
                option.click(timeout=3000)
                break
        tools = panel.get_by_role("textbox", name="Tools (JSON)")
        playwright.expect(tools).to_have_value(re.compile("get_weather"), timeout=PATIENCE_MS)


def fill_result(page: Page, box: str, text: str) -> None:
    page.get_by_role("textbox", name=box, exact=True).fill(text)
    page.keyboard.press("Tab")


def copied_body(page: Page, pane: int) -> Any:
    page.get_by_role("button", name="Copy as code").nth(pane).click()
    command = page.get_by_test_id("stPopoverBody").get_by_test_id("stCode").first.inner_text()
    page.keyboard.press("Escape")
    return json.loads(command[command.index("{") : command.rindex("}") + 1])


def test_each_of_two_panes_gets_the_results_of_its_own_calls(page: Page) -> None:
    two_panes_with_tools(page, B="Call twice")
    ask(page, "Weather?", answers=2)
    fill_result(page, "Both panes: result of get_weather", "rain")
    fill_result(page, "Pane B: result of get_weather", "sun")
    page.get_by_role("button", name="Send the results").click()
    page.get_by_text("It rains in Oslo.").first.wait_for()
    page.get_by_text("In both.").first.wait_for()
    page.get_by_role("button", name="Regenerate").wait_for()
    for pane, results in enumerate((["rain"], ["rain", "sun"])):
        messages = copied_body(page, pane)["messages"]
        ids = [call["id"] for one in messages for call in one.get("tool_calls", ())]
        tools = [one for one in messages if one["role"] == "tool"]
        assert [one["tool_call_id"] for one in tools] == ids
        assert [one["content"] for one in tools] == results


def test_a_pane_that_called_no_tool_waits_for_the_next_message(page: Page) -> None:
    two_panes_with_tools(page, A="Call none")
    ask(page, "Weather?", answers=2)
    fill_result(page, "Pane B: result of get_weather", "rain")
    page.get_by_role("button", name="Send the results").click()
    page.get_by_text("It rains in Oslo.").first.wait_for()
    page.get_by_text("This pane called no tool").first.wait_for()
    page.get_by_role("button", name="Regenerate").wait_for()
    ask(page, "And now?", answers=2)
    assert page.get_by_text("The server refused").count() == 0
    roles = [[one["role"] for one in copied_body(page, pane)["messages"]] for pane in (0, 1)]
    assert roles == [
        ["system", "user", "assistant", "user"],
        ["user", "assistant", "tool", "assistant", "user"],
    ]


def test_what_is_wrong_with_what_was_written_is_said_beside_it(page: Page) -> None:
    open_more(page)
    tools = page.get_by_role("textbox", name="Tools (JSON)")
    tools.fill("[{]")
    tools.press("Control+Enter")
    page.get_by_text("Tools: not valid JSON at line 1, column 3").first.wait_for()
    field = page.get_by_test_id("stChatInputTextArea")
    playwright.expect(field).to_be_disabled()
    tools.fill(r'[{"name": "a", "description": "\ud83d x"}]')
    tools.press("Control+Enter")
    page.get_by_text(r"Tools: \ud83d is half of a surrogate pair").first.wait_for()
    playwright.expect(field).to_be_disabled()
    tools.fill("")
    tools.press("Control+Enter")
    playwright.expect(field).to_be_enabled()


def test_a_schema_binds_the_answer(page: Page) -> None:
    open_more(page)
    choose(page, "Preset", "Answer in JSON")
    schema = page.get_by_role("textbox", name="JSON schema")
    playwright.expect(schema).to_have_value(re.compile("object"))
    ask(page, "Hello")
    page.get_by_role("button", name="Raw events").click()
    page.keyboard.press("Escape")
    answer = page.get_by_test_id("stChatMessageContent").nth(1).get_by_role("paragraph").first
    assert set(json.loads(answer.inner_text())) == {"name", "age"}


def test_two_panes_answer_one_question_and_their_differences_are_marked(
    page: Page, server: QuireServer
) -> None:
    page.get_by_text("Two panes", exact=True).click()
    page.get_by_role("tab", name="Pane B").click()
    # While the panes are drawn, there is still the box of the one that was there before.
    second = page.get_by_role("tabpanel", name="Pane B")
    system = second.get_by_role("textbox", name="System prompt")
    system.fill("Be blue")
    system.press("Control+Enter")
    page.wait_for_load_state("networkidle")
    before = len(lines(server, "chat_completions"))
    ask(page, "Two colours", answers=2)
    until(lambda: len(lines(server, "chat_completions")) == before + 2, 30, "two log lines")
    page.get_by_text("A / B: system: – / Be blue").first.wait_for()
    page.get_by_text("Mark differences").click()
    page.locator(".quire-tokens mark").nth(1).wait_for()
    assert page.locator(".quire-tokens mark").all_inner_texts() == ["red", "blue"]


def test_tokens_tell_how_likely_they_were(page: Page) -> None:
    open_more(page)
    page.get_by_text("Logprobs", exact=True).click()
    # The question must not overtake the setting.
    setting = page.get_by_label("Logprobs", exact=True)
    playwright.expect(setting).to_be_checked(timeout=PATIENCE_MS)
    ask(page, "Hello")
    tokens = page.locator(".quire-tokens span")
    tokens.first.wait_for()
    assert "".join(tokens.all_inner_texts()).startswith("Hello there.")
    assert len((tokens.first.get_attribute("title") or "").splitlines()) == 5


def test_an_edited_message_begins_a_branch_and_one_can_go_back(page: Page) -> None:
    ask(page, "First question")
    ask(page, "Second question")
    page.get_by_role("button", name="Edit").first.click()
    box = page.get_by_role("textbox", name="Message")
    box.fill("Another question")
    box.press("Control+Enter")
    page.get_by_role("button", name="Send as a new branch").click()
    page.get_by_text("Version 2 of 2").first.wait_for()
    # While the answer grows, Streamlit still shows what was below the longer branch.
    playwright.expect(page.get_by_role("button", name="Regenerate")).to_have_count(1)
    assert page.get_by_text("Second question").count() == 0
    page.get_by_role("button", name="Earlier").click()
    page.get_by_text("Second question").first.wait_for()
    assert page.get_by_text("Another question").count() == 0
    page.get_by_text("Version 1 of 2").first.wait_for()


def test_the_box_of_a_message_that_was_edited_again_is_closed(page: Page) -> None:
    ask(page, "First question")
    for version, words in ((2, "Second wording"), (3, "Third wording")):
        page.get_by_role("button", name="Edit").click()
        box = page.get_by_role("textbox", name="Message")
        box.fill(words)
        box.press("Control+Enter")
        page.get_by_role("button", name="Send as a new branch").click()
        page.get_by_text(f"Version {version} of {version}").first.wait_for()
        page.get_by_role("button", name="Regenerate").wait_for()
        playwright.expect(page.get_by_test_id("stPopoverBody")).to_have_count(0, timeout=10_000)


def test_the_code_and_the_raw_events_can_be_seen(page: Page) -> None:
    ask(page, "Hello")
    page.get_by_role("button", name="Copy as code").click()
    code = page.get_by_test_id("stPopoverBody")
    for language, word in (("curl", "curl -N"), ("Python", "httpx"), ("JavaScript", "fetch(")):
        code.get_by_role("tab", name=language).click()
        code.get_by_text(word).first.wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Raw events").click()
    page.get_by_test_id("stPopoverBody").get_by_text("chat.completion.chunk").first.wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_is_readable_and_fits(
    browser: Browser, dashboard: str, said: list[str], scheme: Any, width: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.on("console", lambda message: said.extend(ours(message)))
    page.goto(f"{dashboard}/playground")
    ask(page, "Think first")
    ask(page, "Code")
    page.locator(".stCode .token").first.wait_for()  # coloured
    main = page.get_by_test_id("stMain")
    assert main.evaluate("main => main.scrollWidth <= main.clientWidth")
    found = violations(page)
    if width > 1000:
        open_more(page)
        page.get_by_role("textbox", name="JSON schema").wait_for()
        page.wait_for_timeout(300)  # unfolded, and not in the middle of it
        found += violations(page)
    context.close()
    assert found == []
    assert said == []
    if not AXE.exists():
        pytest.skip("rules of accessibility: needs axe-core (make test installs it)")


def test_how_much_of_a_long_prompt_is_read_is_told(browser: Browser, tmp_path: Path) -> None:
    port = free_port()
    with (
        QuireServer("simulated:prefill=1000", "--admin-port", str(port)) as slow,
        dashboard_of(slow.url, tmp_path / "log", admin=f"http://127.0.0.1:{port}") as dashboard,
    ):
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"{dashboard}/playground")
        field = page.get_by_test_id("stChatInputTextArea")
        field.fill("one two three " * 4_000)
        field.press("Enter")
        page.get_by_text(re.compile(r"Reading the prompt, [1-9][\d.]* %")).wait_for()
        page.get_by_role("button", name="Stop", exact=True).click()
        until(lambda: slow.total("quire_sequences_running") == 0, 30, "the abort")
        page.close()


def test_pocket_tells_its_true_figures(browser: Browser, tmp_path: Path) -> None:
    with QuireServer() as pocket, dashboard_of(pocket.url, tmp_path / "log") as dashboard:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"{dashboard}/playground")
        page.get_by_text("demonstration model").first.wait_for()
        shown = ask(page, "Who are you?").inner_text()
        line = until(lambda: lines(pocket, "chat_completions"), 30, "the log line")[0]
        page.get_by_role("button", name="Timings").click()
        told = json.loads(
            page.get_by_test_id("stPopoverBody").get_by_test_id("stCode").inner_text()
        )
        assert told["time_to_first_token_ms"] == line["ttft_ms"]
        assert told["queue_ms"] == line["queue_ms"]
        assert f"{number(told['output_tokens_per_second'])} tok/s" in shown
        page.close()
