"""Arrays have the kernels' dtype, tables their width."""

from __future__ import annotations

import numpy as np

from engine.attention.packing import int32, widened


def test_a_table_is_widened_to_a_multiple_of_sixteen_columns() -> None:
    table = np.arange(34).reshape(2, 17)
    assert widened(table).shape == (2, 32)
    assert (widened(table)[:, :17] == table).all()
    assert widened(table[:, :16]).shape == (2, 16)


def test_numbers_become_32_bits_wide_and_are_copied_only_then() -> None:
    wide = np.array([[-9, 2**31 - 1]])
    narrow = int32(wide)
    assert narrow.dtype == np.int32
    assert narrow.tolist() == wide.tolist()
    assert int32(narrow) is narrow
