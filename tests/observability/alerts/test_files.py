"""The rule file is YAML that says what the table says; other objectives can be written."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from observability.alerts.__main__ import main
from observability.alerts.files import RULES, RUNBOOK, alert_files, rules_text, runbook_text
from observability.alerts.table import alerts
from observability.objectives import Objectives


def test_rules_say_what_the_table_says() -> None:
    loaded = yaml.safe_load(rules_text(Objectives(), "https://wiki/alerts"))
    objectives, rules = loaded["groups"]
    assert (objectives["name"], rules["name"]) == ("quire-objectives", "quire")
    assert all(rule["record"].startswith("job:quire_") for rule in objectives["rules"])
    for rule, alert in zip(rules["rules"], alerts(Objectives()), strict=True):
        assert (rule["alert"], rule["expr"], rule["for"]) == (alert.name, alert.expr, alert.hold)
        assert rule["labels"] == {"severity": alert.severity.value}
        assert rule["annotations"]["summary"] == alert.summary
        assert rule["annotations"]["runbook_url"] == f"https://wiki/alerts#{alert.anchor}"


def test_the_runbook_says_what_to_look_at_and_do_for_each() -> None:
    page = runbook_text(Objectives())
    for alert in alerts(Objectives()):
        assert f"\n## {alert.name}\n" in page
        for item in (*alert.look, *alert.act):
            assert f"- {item}\n" in page
    assert set(alert_files()) == {RULES, RUNBOOK}


def test_other_objectives_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--ttft", "1.5", "--availability-budget", "0.01"]) == 0
    rules = capsys.readouterr().out
    assert 'le=\\"1.5\\"' in rules
    assert "availability_missed:ratio_rate1h > 0.144" in rules


def test_an_objective_that_is_no_bound_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--ttft", "1.6"])
    assert "ttft must be a bucket bound" in capsys.readouterr().err


@pytest.mark.debian
@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Debian's package prometheus")
def test_promtool_finds_nothing_wrong(tmp_path: Path) -> None:
    other = tmp_path / "rules.yaml"
    other.write_text(rules_text(Objectives(ttft=0.5, itl=0.02), "https://wiki"))
    for path in (RULES, other):
        done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
