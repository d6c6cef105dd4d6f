"""Whether a page in Chromium is readable for everybody, and what the browser says about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.quire_server import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Page

AXE = ROOT / "build" / "clients" / "node_modules" / "axe-core" / "axe.min.js"
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]


def violations(page: Page) -> list[str]:
    """Return what axe-core finds; nothing where it is not installed (see ``AXE``)."""
    if not AXE.exists():
        return []
    page.evaluate(AXE.read_text())
    found = page.evaluate("rules => axe.run(document, {runOnly: rules})", _RULES)["violations"]
    return [f"{rule['id']}: {[node['html'][:200] for node in rule['nodes']]}" for rule in found]


def ours(message: ConsoleMessage) -> list[str]:
    """Return an error or a warning. Streamlit finds out by trying which part of a deep link is its
    base: that is not ours to mend."""
    address = message.location.get("url", "")
    if message.type in ("error", "warning") and "/_stcore/" not in address:
        return [f"{message.text} {address}"]
    return []


def fits_across(page: Page) -> bool:
    """Without scrolling sideways."""
    return bool(
        page.get_by_test_id("stMain").evaluate("main => main.scrollWidth <= main.clientWidth")
    )
