"""How a visitor signs in to a server's admin API, and what pages show until then."""

from __future__ import annotations

import streamlit as st

from dashboard.access import (
    OPERATORS_SETTING,
    Access,
    Standing,
    access,
    accesses,
    forget_key,
    has_typed_key,
    sign_in_left,
    try_key,
    uses_oidc,
)
from dashboard.feeds import feeds
from dashboard.markdown import plain_label, plain_markdown
from dashboard.session import picked_server
from dashboard.settings import ADMIN_KEY_VARIABLE, ADMIN_VARIABLE
from dashboard.sign_in_return import FAILED

_RETRY_SECONDS = 5.0
_CHECK_SECONDS = 60.0


def visitors_only() -> None:
    """Where sign-in by OIDC is configured, end the page for those who are not signed in, and draw
    the way out for the others."""
    if not uses_oidc():
        return
    left = sign_in_left()
    if left <= 0:
        if FAILED in st.query_params:
            st.error("Signing in failed. The dashboard's log says why.")
        elif st.user.is_logged_in:
            st.caption("Your sign-in has ended. Sign in again.")
        st.button("Sign in", on_click=st.login, type="primary")
        st.stop()
    st.query_params.pop(FAILED, None)
    with st.container(key="sign-out", width="content"):
        st.button("Sign out", on_click=st.logout, type="tertiary")
    st.fragment(_end_in_time, run_every=min(left, _CHECK_SECONDS))()


def _end_in_time() -> None:
    """A page that is left open ends with the sign-in."""
    if sign_in_left() <= 0:
        st.rerun()


def one_server() -> int:
    """Return the index of the server to show; a picker is drawn where there is a choice."""
    return picked_server(feeds().servers)


def admitted(index: int) -> Access:
    """Return the visitor's access; where it is not enough to read, say so and end the page."""
    found = access(index)
    if found.standing is Standing.STRANGER:
        sign_in(index, found.problem)
        st.stop()
    name = feeds().servers[index].name
    if not feeds().servers[index].admin:
        st.info(
            f"This page needs the admin API of {name}, but this dashboard has no address for it. "
            f"Set `{ADMIN_VARIABLE}` and restart the dashboard."
        )
        st.stop()
    if found.standing in (Standing.ABSENT, Standing.AWAY):
        st.info(not_responding(name, found))
        wait_for_answer(index)
        st.stop()
    return found


def not_responding(name: str, found: Access) -> str:
    """Say that a server's admin API does not respond and, if it never has, what to do."""
    said = plain_label(f"The admin API of {name} is not responding. {found.problem}")
    if found.standing is Standing.AWAY:
        return said
    return (
        f"{said} If the server is running, its admin API may be switched off (`--no-admin`), "
        "closed to other machines (no `--admin-host`), or at another address, which the server "
        f"prints when it starts: set `{ADMIN_VARIABLE}` to that and restart the dashboard."
    )


@st.fragment(run_every=_RETRY_SECONDS)
def wait_for_answer(*indexes: int) -> None:
    """Have the page drawn again once the admin API of one of the servers answers."""
    found = accesses(indexes).values()
    if any(one.standing not in (Standing.ABSENT, Standing.AWAY) for one in found):
        st.rerun()


def operators_only(what: str, index: int) -> None:
    """Say that this visitor may not do ``what``, and how to become one who may."""
    how = (
        f"members of the group in `{OPERATORS_SETTING}`"
        if uses_oidc()
        else "those who sign in with an admin key of scope `operate` "
        "(start the server with `QUIRE_ADMIN_KEY=operate:NAME=KEY`)"
    )
    st.caption(f"Only operators can {what}: {how}.")
    sign_out(index, "Use another key")


def sign_out(index: int, label: str = "Sign out") -> None:
    """Draw a button that forgets the key that this visitor typed, if one did."""
    if has_typed_key(index):
        st.button(label, on_click=forget_key, args=(index,))


def sign_in(index: int, problem: str) -> None:
    """Ask for the admin key. Where visitors sign in by OIDC, and so have none, say that the
    dashboard's own is at fault."""
    if uses_oidc():
        st.error(_own_key_refused(index, problem))
        return
    with st.form("sign-in", width=460):
        st.markdown("**Sign in**")
        key = st.text_input("Admin key", type="password", autocomplete="off")
        st.caption(
            f"One of the keys that {feeds().servers[index].name} was started with "
            "(`QUIRE_ADMIN_KEY`), without its `operate:NAME=`. This dashboard remembers it for "
            "twelve hours, for this browser only."
        )
        if st.form_submit_button("Sign in", type="primary") and key.strip():
            problem = try_key(index, key.strip())
            if not problem:
                st.rerun()
    if problem:
        st.caption(plain_markdown(problem))


def _own_key_refused(index: int, problem: str) -> str:
    name = feeds().servers[index].name
    fault = (
        plain_label(f"{name} refuses the admin key of this dashboard. {problem}")
        if feeds().key(index)
        else f"{name} requires an admin key, and this dashboard has none."
    )
    return (
        f"{fault} Set `{ADMIN_KEY_VARIABLE}` to one of the keys that the server was started with "
        "(`QUIRE_ADMIN_KEY`), without its `operate:NAME=`, and restart the dashboard."
    )
