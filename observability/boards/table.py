"""All boards."""

from __future__ import annotations

from pathlib import Path

from observability.boards.engine import ENGINE_BOARD, GPU_BOARD, KV_BOARD
from observability.boards.grafana import text
from observability.boards.model import Board
from observability.boards.objectives import SLO_BOARD
from observability.boards.overview import OVERVIEW
from observability.boards.requests import API_BOARD, KEYS_BOARD, PHASES_BOARD

BOARDS: tuple[Board, ...] = (
    OVERVIEW,
    PHASES_BOARD,
    KV_BOARD,
    ENGINE_BOARD,
    API_BOARD,
    KEYS_BOARD,
    SLO_BOARD,
    GPU_BOARD,
)

FOLDER = Path(__file__).resolve().parent.parent / "grafana"


def board_files() -> dict[Path, str]:
    """Return the content of each board's file."""
    return {FOLDER / f"{board.name}.json": text(board) for board in BOARDS}
