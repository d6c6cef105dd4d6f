"""Arrays of any dtype arrive whole, each aligned, in one copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from engine.device.sending import packed_and_sent, sent, sent_one

CPU = torch.device("cpu")
ARRAYS = st.sampled_from([np.bool_, np.uint8, np.int32, np.int64, np.float32, np.float64]).flatmap(
    lambda dtype: arrays(dtype, array_shapes(max_dims=2, min_side=0, max_side=40))
)


def check(given_arrays: list[NDArray[Any]], received: list[torch.Tensor]) -> None:
    for array, tensor in zip(given_arrays, received, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), array)
        assert tensor.numpy().dtype == array.dtype
        assert tensor.is_contiguous()


@given(st.lists(ARRAYS, min_size=1, max_size=6))
def test_arrays_arrive_as_they_were_each_at_a_multiple_of_64_bytes(
    given_arrays: list[NDArray[Any]],
) -> None:
    received = packed_and_sent(given_arrays, CPU)
    check(given_arrays, received)
    for tensor in received:
        assert tensor.storage_offset() * tensor.element_size() % 64 == 0 or tensor.numel() == 0


@given(st.lists(ARRAYS, max_size=6))
def test_on_a_cpu_arrays_are_where_they_were(given_arrays: list[NDArray[Any]]) -> None:
    """A step on a CPU would pay for the copy, and gain nothing."""
    received = sent(given_arrays, CPU)
    check(given_arrays, received)
    assert all(
        tensor.data_ptr() == array.ctypes.data or array.size == 0
        for tensor, array in zip(received, given_arrays, strict=True)
    )


def test_what_was_packed_does_not_change_with_the_array() -> None:
    array = np.arange(5)
    [there] = packed_and_sent([array[::2]], CPU)
    array[:] = 0
    assert there.tolist() == [0, 2, 4]
    assert sent_one(array[1::2], CPU).is_contiguous()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_host_does_not_wait_for_a_gpu() -> None:
    device = torch.device("cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        received = sent([np.arange(9), np.ones(3, np.float32)], device)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert [tensor.tolist() for tensor in received] == [list(range(9)), [1.0] * 3]
