"""Arrays sent in one copy arrive whole and aligned."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from engine.attention.packing import sent_together, widened

CPU = torch.device("cpu")
integers = arrays(
    np.int64, array_shapes(max_dims=2, min_side=0, max_side=40), elements=st.integers(-9, 2**31 - 1)
)


@given(st.lists(integers, min_size=1, max_size=6))
def test_arrays_sent_together_arrive_as_they_were_each_at_a_multiple_of_64_bytes(
    sent: list[np.ndarray],
) -> None:
    received = sent_together(sent, CPU)
    begin = received[0].data_ptr()
    for array, tensor in zip(sent, received, strict=True):
        assert tensor.dtype == torch.int32
        assert tensor.shape == array.shape
        assert tensor.tolist() == array.tolist()
        assert (tensor.data_ptr() - begin) % 64 == 0 or array.size == 0


def test_a_table_is_widened_to_a_multiple_of_sixteen_columns() -> None:
    table = np.arange(34).reshape(2, 17)
    assert widened(table).shape == (2, 32)
    assert (widened(table)[:, :17] == table).all()
    assert widened(table[:, :16]).shape == (2, 16)
