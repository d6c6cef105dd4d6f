"""The Admin page; its orders are given to a running Quire."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.admin_client import AdminClient, AdminRefusalError
from dashboard.markdown import plain_markdown
from dashboard.settings import ADMIN_VARIABLE, SERVERS_VARIABLE
from dashboard.views.admin import allowed, audit_table, serving, setting_row
from observability.admin_api import AuditRow, Condition, HotSetting
from tests.dashboard.admin_server import overview
from tests.e2e.quire_server import QuireServer, free_port, until

OPERATE, READ = "ann-operates-0123456789", "eve-reads-0123456789"


def _draw() -> None:
    import os

    from dashboard.access import remember_key
    from dashboard.views import admin

    remember_key(0, os.environ["KEY_TYPED"])  # as the form does
    admin.page()


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, str]]:
    port = free_port()
    keys = ("--admin-key", f"operate:ann={OPERATE}", "--admin-key", f"read:eve={READ}")
    with QuireServer("simulated:h100-8b", "--admin-port", str(port), *keys) as server:
        yield server.url, f"http://127.0.0.1:{port}"


@pytest.fixture
def drawn(
    served: tuple[str, str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AppTest:
    """The page for who has the key of the parameter, if there is one, or an operator."""
    monkeypatch.setenv(SERVERS_VARIABLE, served[0])
    monkeypatch.setenv(ADMIN_VARIABLE, served[1])
    monkeypatch.setenv("KEY_TYPED", getattr(request, "param", OPERATE))
    return AppTest.from_function(_draw, default_timeout=60).run()


def press(page: AppTest, label: str) -> None:
    next(button for button in page.button if button.label == label).click().run()
    assert not page.exception


def test_an_operator_drains_and_resumes(drawn: AppTest, served: tuple[str, str]) -> None:
    assert not drawn.exception
    assert "`simulated:h100-8b` on Quire" in drawn.markdown[0].value
    assert "Sign out" in [button.label for button in drawn.button]
    client = AdminClient(served[1], OPERATE)
    idle = Condition.IDLE  # with an engine, of which a verdict speaks first
    until(lambda: client.overview()[0].verdict.condition is idle, 60, "the engine")
    press(drawn, "Drain now")
    assert ", draining. Draining" in drawn.markdown[0].value
    press(drawn, "Resume now")
    assert ", ok. " in drawn.markdown[0].value
    assert "Draining" not in drawn.markdown[0].value
    press(drawn, "Set level")
    actions = [row.action for row in client.audit()]
    assert {"drain", "resume", "loglevel"} <= set(actions)


@pytest.mark.parametrize("drawn", [READ], indirect=True)
def test_a_viewer_sees_the_tables_and_no_controls(drawn: AppTest) -> None:
    assert not drawn.exception
    assert len(drawn.dataframe) >= 1
    assert any("Only operators can make changes here: " in one.value for one in drawn.caption)
    assert [button.label for button in drawn.button] == ["Use another key"]
    assert not drawn.selectbox
    assert not drawn.number_input


def test_a_setting_is_saved_and_a_refusal_is_the_server_s(
    drawn: AppTest, served: tuple[str, str]
) -> None:
    client = AdminClient(served[1], OPERATE)
    setting = next(
        one
        for one in client.settings().settings
        if one.kind in ("int", "float") and one.maximum is not None and one.minimum is not None
    )
    next(box for box in drawn.selectbox if box.label == "Change").set_value(setting.name).run()
    drawn.number_input[0].set_value(drawn.number_input[0].value * 0 + setting.minimum)
    press(drawn, "Save")
    found = {one.name: one.value for one in client.settings().settings}
    assert found[setting.name] == setting.minimum
    drawn.number_input[0].set_value(setting.maximum + 1)
    press(drawn, "Save")
    with pytest.raises(AdminRefusalError) as caught:
        client.change_setting(setting.name, setting.maximum + 1, client.settings().revision)
    assert drawn.error[0].value == plain_markdown(str(caught.value))


def test_the_bundle_is_a_zip_file(served: tuple[str, str]) -> None:
    with zipfile.ZipFile(io.BytesIO(AdminClient(served[1], OPERATE).bundle())) as made:
        assert "manifest.json" in made.namelist()


def test_a_bundle_is_offered_once_it_is_made_and_a_refusal_is_the_server_s(
    drawn: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not drawn.get("download_button")
    press(drawn, "Make the bundle")
    assert len(drawn.get("download_button")) == 1
    assert not drawn.error

    def refused(_: AdminClient) -> bytes:
        raise AdminRefusalError(503, "No bundle now: it costs $5.")

    monkeypatch.setattr(AdminClient, "bundle", refused)
    press(drawn, "Make the bundle")
    assert [one.value for one in drawn.error] == [r"No bundle now: it costs \$5."]
    assert not drawn.get("download_button")


def test_what_serves_is_said_with_its_format_and_what_it_does_not_take() -> None:
    said = serving(overview(quantization="fp8", unserved_inputs=("image",)))
    assert said == "`m` (fp8; text only, no image) on Quire 1, up for 10 s, ok. Healthy."
    assert serving(overview()).startswith("`m` on Quire 1, ")


def number(**changed: float | None) -> HotSetting:
    return HotSetting(name="n", help="h", kind="int", value=3, default=2, **changed)


def test_what_is_allowed_is_said_in_words() -> None:
    assert allowed(number(minimum=1, maximum=9)) == "1 to 9"
    assert allowed(number(minimum=1)) == "at least 1"
    assert allowed(number(maximum=9)) == "at most 9"
    assert allowed(number()) == "any"
    assert allowed(number(minimum=0.001, maximum=1e8)) == "0.001 to 100,000,000"
    choice = HotSetting(
        name="c", help="h", kind="choice", value="a", default="a", choices=("a", "b")
    )
    assert allowed(choice) == "a, b"


def test_a_row_has_the_value_and_the_default() -> None:
    row = setting_row(number(minimum=1))
    assert (row["value"], row["default"], row["changed by"]) == ("3", "2", "")


def test_an_action_says_who_did_what() -> None:
    (row,) = audit_table([AuditRow(time=0.0, actor="ann", address="::1", action="drain")])
    assert (row["who"], row["action"], row["result"]) == ("ann", "drain", "done")
