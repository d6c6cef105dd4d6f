"""A request's time by phases as a bar, an SVG drawing."""

from __future__ import annotations

import base64

from dashboard.board import PHASE_COLORS
from dashboard.words import duration
from observability.admin_api import KeptRequest
from observability.phases import PHASES

BAR_WIDTH = 134  # pixels, in a row of a table

# As in drawing/common.js.
_HEX = {
    "teal": "#0d9488",
    "indigo": "#6366f1",
    "grey": "#8291a5",
    "amber": "#d97706",
    "red": "#e11d48",
    "lightblue": "#5bb0e4",
    "blue": "#1d8fd1",
    "deepblue": "#4a62c8",
}


# Lines that show the page through, in a colour that no phase has: visible on white and black.
_HATCHED = (
    '<pattern id="other" width="7" height="7" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)" fill="#8291a5"><rect width="7" height="7" fill-opacity=".2"/>'
    '<rect width="2" height="7"/></pattern>'
)


def phase_bar(request: KeptRequest, share: float = 1.0, width: int = BAR_WIDTH) -> str:
    """Return the bar as a data URL; time in no phase is hatched. ``share``: how much of ``width``
    it takes."""
    spent = [
        (_HEX[PHASE_COLORS[phase.name]], request.phases.get(phase.name, 0.0)) for phase in PHASES
    ]
    measured = sum(seconds for _, seconds in spent)
    total = max(request.total, measured + request.other)
    spent.append(("url(#other)", total - measured))
    rectangles, left = [], 0.0
    for fill, seconds in spent:
        wide = seconds / (total or 1.0) * width * min(1.0, max(share, 0.01))
        rectangles.append(f'<rect x="{left:.2f}" width="{wide:.2f}" height="29" fill="{fill}"/>')
        left += wide
    drawing = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="29" '
        f'viewBox="0 0 {width} 29" preserveAspectRatio="none">{_HATCHED}{"".join(rectangles)}</svg>'
    )
    return f"data:image/svg+xml;base64,{base64.b64encode(drawing.encode()).decode()}"


def longest_phase(phases: dict[str, float]) -> str:
    """Return its name and length: ``queue 3.90 s``; empty without phases."""
    if not phases:
        return ""
    name = max(phases, key=lambda one: phases[one])
    return f"{name} {duration(phases[name])}"
