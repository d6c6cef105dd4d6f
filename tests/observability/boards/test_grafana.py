"""A board's JSON is what Grafana's own types describe."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from observability.boards.grafana import dashboard, text
from observability.boards.model import (
    Board,
    Panel,
    PanelKind,
    PanelQuery,
    PanelRow,
    PanelUnit,
    Picker,
)
from observability.boards.table import BOARDS

ROOT = Path(__file__).resolve().parents[3]
MODULES = ROOT / "build" / "clients" / "node_modules"
TSC = MODULES / ".bin" / "tsc"

UP = (PanelQuery("up", "{{job}}"),)


# Plain: with the values of enums, which JSON has, rather than their members.
TYPES = """\
import type { Dashboard } from '@grafana/schema';
type Plain<T> = T extends string ? `${T}`
    : T extends (infer U)[] ? Plain<U>[]
    : T extends object ? { [K in keyof T]: Plain<T[K]> }
    : T;
"""


def board(*panels: Panel, pickers: tuple[Picker, ...] = ()) -> Board:
    return Board("x", "X", "All.", (PanelRow("Row", panels),), (), pickers)


def panel(kind: PanelKind = PanelKind.TIME_SERIES, width: int = 8) -> Panel:
    return Panel("Up", "Is it?", UP, PanelUnit.SHARE, kind, width=width)


def test_panels_fill_rows_of_24_columns_without_overlap() -> None:
    made = dashboard(board(*[panel(width=10)] * 5))
    places = [each["gridPos"] for each in made["panels"]]
    assert [(p["x"], p["y"]) for p in places] == [
        *((0, 0), (0, 1), (10, 1), (0, 9), (10, 9), (0, 17)),
    ]
    assert len({each["id"] for each in made["panels"]}) == 6


@pytest.mark.parametrize("each", BOARDS, ids=lambda each: each.name)
def test_no_panels_overlap(each: Board) -> None:
    taken: set[tuple[int, int]] = set()
    for made in dashboard(each)["panels"]:
        place = made["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_no_traffic_is_said_rather_than_shown_as_an_empty_tile() -> None:
    (_, made) = dashboard(board(panel()))["panels"]
    defaults = made["fieldConfig"]["defaults"]
    assert defaults["noValue"] == "No traffic"
    (mapping,) = defaults["mappings"]
    assert mapping["options"]["match"] == "null+nan"
    assert defaults["unit"] == "percentunit"


def test_heat_maps_and_tables_get_their_formats() -> None:
    made = dashboard(board(panel(PanelKind.HEAT_MAP), panel(PanelKind.TABLE)))["panels"]
    assert [each["targets"][0]["format"] for each in made[1:]] == ["heatmap", "table"]
    assert made[2]["targets"][0]["instant"]
    assert made[2]["transformations"][1]["options"]["renameByName"] == {"Value": "{{job}}"}


def test_a_picker_begins_with_its_start() -> None:
    picker = Picker("slo", "SLO", ("1.0", "2.0"), "2.0")
    (_, variable) = dashboard(board(panel(), pickers=(picker,)))["templating"]["list"]
    assert variable["current"]["value"] == "2.0"
    assert [option["selected"] for option in variable["options"]] == [False, True]


def test_the_text_is_json_with_a_line_end() -> None:
    made = text(board(panel()))
    assert json.loads(made) == dashboard(board(panel()))
    assert made.endswith("}\n")


def compile_boards(folder: Path, sources: dict[str, str]) -> str:
    """Return what the TypeScript compiler says of these files."""
    (folder / "node_modules").symlink_to(MODULES)
    (folder / "package.json").write_text('{"type": "module"}')
    options = {
        "strict": True,
        "noEmit": True,
        "skipLibCheck": True,
        "module": "node16",
        "moduleResolution": "node16",
    }
    names = []
    for name, source in sources.items():
        names.append(f"{name}.ts")
        (folder / f"{name}.ts").write_text(
            f"{TYPES}export const board: Plain<Dashboard> = {source};\n"
        )
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": names}))
    done = subprocess.run(
        [TSC, "--project", folder], capture_output=True, text=True, cwd=folder, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.node
@pytest.mark.skipif(
    shutil.which("node") is None or not TSC.exists() or not (MODULES / "@grafana/schema").exists(),
    reason="needs Node.js, and @grafana/schema in build/clients (make test installs it)",
)
def test_all_boards_are_of_grafanas_type(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for folder in (good, bad):
        folder.mkdir()
    sources = {each.name: json.dumps(dashboard(each)) for each in BOARDS}
    assert compile_boards(good, sources) == ""
    wrong = sources["overview"].replace('"gridPos": {"x": 0', '"gridPos": {"x": "0"', 1)
    assert wrong != sources["overview"]
    assert "overview.ts" in compile_boards(bad, {"overview": wrong})
