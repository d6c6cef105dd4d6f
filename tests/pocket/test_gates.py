"""The gates judge what they claim to judge."""

import json
import subprocess
import sys

from pocket.answer import Answer, ToolCall, parse, tool_call
from pocket.gates import gates, table


def test_gates_need_neither_torch_nor_a_model():
    code = "import sys, pocket.gates; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_empty_answer_passes_only_where_silence_is_right():
    silent = {gate.name for gate in gates(samples=3) if all(c.score(Answer()) for c in gate.cases)}
    assert silent == {
        "stops, in world",
        "stops, outside world",
        "does not think unasked",
        "no call when none is needed",
    }


def test_a_right_call_passes_and_a_wrong_one_does_not():
    gate = next(gate for gate in gates(samples=5) if gate.name == "known tool")
    for case in gate.cases:
        [[name, arguments]] = json.loads(case.expected)
        assert case.score(Answer(tool_calls=(tool_call(name, json.dumps(arguments)),)))
        assert not case.score(Answer(tool_calls=(ToolCall(name + "x", arguments),)))
        assert not case.score(Answer(content=case.expected))


def test_an_unclosed_thought_is_content():
    answer = parse("<think>\nwell", stopped=False)
    assert answer.content.startswith("<think>")
    assert answer.finish_reason == "length"


def test_a_call_that_is_not_json_has_no_arguments():
    [call] = parse("<tool_call>\n{oops\n</tool_call>").tool_calls
    assert call.arguments is None


def test_the_table_tells_pass_from_short():
    shown = table([("a", 0.9, 0.8, 10, False), ("b", 0.7, 0.8, 10, True)])
    assert "pass" in shown
    assert "SHORT (blocking)" in shown
