"""AMX's tiles hold what was stored in memory before they were loaded."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from engine.cpu import library
from engine.cpu.library import LibraryUnavailableError, VectorLevel, build, usable_levels
from tests.engine.cpu.emulation import TILES

try:
    HARDWARE = [level for level in usable_levels() if "amx_tile" in level.needs]
except LibraryUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)

HEIGHT, ROW_BYTES = 16, 64
# Only the tiles' instructions read what it stores, so a compiler that does not know what they read
# leaves that out.
SOURCE = """
#include "{folder}/tiles.h"

int32_t sum_of_products(int rows, int8_t input, int8_t weight) {{
  int32_t sums[TILE_HEIGHT][TILE_BYTES / 4], total = 0;
  int8_t inputs[TILE_HEIGHT][TILE_BYTES], weights[TILE_HEIGHT][TILE_BYTES];
  tile_sizes sizes = sizes_of_tiles(TILE_HEIGHT, TILE_HEIGHT);
  for (int n = 0; n < 6; n++) sizes.rows[n] = rows;
  TILE_CONFIGURE(sizes);
  memset(&sizes, 0, sizeof(sizes));
  memset(sums, 0, sizeof(sums));
  memset(inputs, input, sizeof(inputs));
  memset(weights, weight, sizeof(weights));
  TILE_LOAD(0, sums, TILE_BYTES);
  TILE_LOAD(4, inputs, TILE_BYTES);
  TILE_LOAD(6, weights, TILE_BYTES);
  memset(inputs, 0, sizeof(inputs));
  memset(weights, 0, sizeof(weights));
  TILE_ADD_BYTES(0, 4, 6);
  TILE_STORE(0, sums, TILE_BYTES);
  TILE_RELEASE();
  for (int r = 0; r < TILE_HEIGHT; r++)
    for (int i = 0; i < TILE_BYTES / 4; i++) total += sums[r][i];
  return total;
}}
"""


@pytest.mark.debian
@pytest.mark.parametrize("level", [TILES, *HARDWARE], ids=lambda level: level.name)
def test_a_tile_is_loaded_after_all_that_was_stored_before(
    level: VectorLevel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source, made = tmp_path / "probe.c", tmp_path / "probe.so"
    source.write_text(SOURCE.format(folder=library.FORWARD_SOURCE.parent))
    monkeypatch.setattr(library, "FORWARD_SOURCE", source)
    try:
        build(level, made)
    except LibraryUnavailableError as error:
        pytest.skip(str(error))
    probe = ctypes.CDLL(str(made)).sum_of_products
    for rows in (1, 5, HEIGHT):
        assert probe(rows, 2, -3) == rows * (ROW_BYTES // 4) * ROW_BYTES * 2 * -3
