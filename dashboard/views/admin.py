"""What serves, the settings that can be changed while it does, and what operators did."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import streamlit as st

from dashboard.admin_client import AdminClient, AdminRefusalError
from dashboard.clock import moment
from dashboard.markdown import plain_label, plain_markdown, plain_name
from dashboard.refused import carried_out, refused
from dashboard.signing_in import admitted, one_server, operators_only, sign_out
from dashboard.views.keys import keys_section
from dashboard.whole import UNUSABLE, whole_field
from dashboard.words import age, in_full, text_only
from observability.admin_api import AuditRow, HotSetting, Overview, Settings

_LEVELS = ("debug", "info", "warning", "error")
_MINUTES = (1, 5, 15, 60)
_REFRESH_SECONDS = 2.0


def page() -> None:
    index = one_server()
    found = admitted(index)
    client = found.client
    try:
        overview, _ = client.overview()
        settings = client.settings()
        rows = client.audit()
        keys = client.keys()
    except AdminRefusalError as refusal:
        refused(refusal)
        return
    st.fragment(_serving, run_every=_REFRESH_SECONDS)(client)
    if found.operates:
        _orders(client, index)
    else:
        operators_only("make changes here", index)
    st.subheader("Settings")
    st.dataframe(
        [setting_row(setting) for setting in settings.settings],
        hide_index=True,
        alt="Settings that can be changed while the server runs",
    )
    if found.operates:
        _change(client, settings)
    keys_section(client, keys, overview.models, operates=found.operates)
    st.subheader("Audit")
    if rows:
        st.dataframe(audit_table(rows), hide_index=True, alt="What operators did, newest first")
    else:
        st.info("No operator has changed anything yet.")


def setting_row(setting: HotSetting) -> dict[str, Any]:
    """Return what the table shows of a setting."""
    return {
        "setting": setting.name,
        "value": _written(setting.value),
        "default": _written(setting.default),
        "allowed": allowed(setting),
        "unit": setting.unit,
        "changed by": setting.changed_by or "",
        "help": setting.help,
    }


def _written(value: float | str) -> str:
    return value if isinstance(value, str) else in_full(value)


def allowed(setting: HotSetting) -> str:
    """Return the values that a setting may have, in words."""
    if setting.choices:
        return ", ".join(setting.choices)
    low, high = setting.minimum, setting.maximum
    if low is not None and high is not None:
        return f"{in_full(low)} to {in_full(high)}"
    if low is not None:
        return f"at least {in_full(low)}"
    return "any" if high is None else f"at most {in_full(high)}"


def audit_table(rows: Iterable[AuditRow]) -> list[dict[str, Any]]:
    """Return one row for each action."""
    return [
        {
            "time": moment(row.time),
            "who": row.actor,
            "from": row.address,
            "action": row.action,
            "target": row.target,
            "before": row.before,
            "after": row.after,
            "result": row.result,
        }
        for row in rows
    ]


def _serving(client: AdminClient) -> None:
    try:
        overview, _ = client.overview()
    except AdminRefusalError as refusal:
        st.info(plain_markdown(str(refusal)))
        return
    st.markdown(plain_markdown(serving(overview)))


def serving(overview: Overview) -> str:
    """Return what serves and how it is, in a sentence or two."""
    traits = [overview.quantization, text_only(overview.unserved_inputs)]
    about = "; ".join(filter(None, traits))
    served = plain_name(overview.model)
    return (
        f"{served}{f' ({about})' if about else ''} on Quire {overview.version}, "
        f"up for {age(overview.uptime)}, {overview.state}. {overview.verdict.sentence}"
    )


def _orders(client: AdminClient, index: int) -> None:
    with st.container(horizontal=True):
        with st.popover("Drain"):
            st.markdown("New requests will be refused; those in flight finish.")
            if st.button("Drain now", type="primary"):
                carried_out(lambda: client.order("drain"))
        with st.popover("Resume"):
            st.markdown("The server will accept new requests again.")
            if st.button("Resume now", type="primary"):
                carried_out(lambda: client.order("resume"))
        with st.popover("Log level"):
            level = st.selectbox("Level", _LEVELS, index=1)
            minutes = st.selectbox("Minutes", _MINUTES, index=1)
            if st.button("Set level"):
                carried_out(lambda: client.order("loglevel", level=level, seconds=minutes * 60.0))
        with st.popover("Incident bundle"):
            st.markdown("The last hour as a zip file, without the content of requests.")
            st.fragment(_bundle)(client)
        sign_out(index)


def _bundle(client: AdminClient) -> None:
    """Get it before it is offered: a download that is made when it is clicked cannot say why it
    failed."""
    if not st.button("Make the bundle", type="primary"):
        return
    try:
        with st.spinner("The server is making the bundle …"):
            made = client.bundle()
    except AdminRefusalError as refusal:
        st.error(plain_markdown(str(refusal)))
        return
    st.download_button("Download", made, "quire-bundle.zip", "application/zip", on_click="ignore")


def _change(client: AdminClient, settings: Settings) -> None:
    by_name = {setting.name: setting for setting in settings.settings}
    chosen = st.selectbox("Change", list(by_name))
    if chosen is None:
        return
    setting = by_name[chosen]
    # The revision is part of the key, so that a value saved elsewhere is seen here.
    with st.form(f"change {chosen} {settings.revision}", width=460):
        value = _value(setting)
        if st.form_submit_button("Save") and value is not UNUSABLE:
            carried_out(lambda: client.change_setting(chosen, value, settings.revision))


def _value(setting: HotSetting) -> float | str:
    """The server judges what is allowed, so that its reason is what is shown."""
    label = plain_label(f"{setting.name} ({allowed(setting)})")
    if setting.kind == "choice":
        index = setting.choices.index(str(setting.value))
        return st.selectbox(label, setting.choices, index=index)
    if setting.kind == "int":
        return whole_field(label, value=int(setting.value))
    return float(st.number_input(label, value=float(setting.value), format="%g"))
