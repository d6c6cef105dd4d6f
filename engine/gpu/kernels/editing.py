"""Edits the logits of rows that need more than temperature and filters, each as its sequence
requires: grammar masks, allowed tokens, bad words, a minimum length, biases, penalties.

It implements ``engine.sampling.sampler.Sampler``'s edits, in their order. What a sequence requires
lies on the device from step to step; a record says where, and what is new.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.launch import row_stride

_BLOCK = 2048
_LIST_BLOCK = 256


class EditRecord(NamedTuple):
    """A row's 64-bit words, in the order in which the kernels read them. Lists are given by their
    address, or by their first place in an array that is sent in each step; and by their number of
    elements. Ids are int64, values float32."""

    row: int  # of the logits
    mask: int = -1  # row of the masks; -1: none
    hidden: int = 0  # address of a byte for each token, not 0 if it is not allowed; 0: none
    alone: int = 0  # address of ids that are never allowed
    num_alone: int = 0
    ending: int = 0  # first place of further ids that are not allowed now
    num_ending: int = 0
    stops: int = 0  # address of ids that are not allowed yet
    num_stops: int = 0
    biased: int = 0  # address of ids
    biases: int = 0  # address of values
    num_biased: int = 0
    counted: int = 0  # address of the ids that the sequence holds
    counts: int = 0  # address of how often it has generated each
    num_counted: int = 0
    update: int = 0  # first place of what is new among them
    num_updates: int = 0
    unused: int = 0

    @property
    def edits_tokens(self) -> bool:
        """True if single tokens are edited, not only masks applied."""
        return bool(
            self.num_alone or self.num_ending or self.num_stops or self.num_biased or self.counted
        )


_WORDS = tl.constexpr(len(EditRecord._fields))


class Edits(NamedTuple):
    """What is sent for a step's rows, on the device. ``records`` int64 [rows, words]; ``factors``
    float32 [rows, 3]: repetition, frequency and presence penalty; ``masks`` int32 [masks, words]:
    bit t % 32 of word t // 32 allows token t; ``endings`` int64: ids; ``update_places`` and
    ``update_ids``, int64, and ``update_counts``, float32: what to write among ``counted`` and
    ``counts``."""

    records: Tensor
    factors: Tensor
    masks: Tensor
    endings: Tensor
    update_places: Tensor
    update_ids: Tensor
    update_counts: Tensor


@triton.jit
def _copy_allowed(
    logits, records, masks, edited, stride, vocabulary, mask_words, BLOCK: tl.constexpr
):
    """Copy a part of a row, hiding what its masks do not allow."""
    place = tl.program_id(0).to(tl.int64)
    record = records + place * _WORDS
    mask = tl.load(record + 1)
    hidden = tl.load(record + 2)
    tokens = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    exists = tokens < vocabulary
    x = tl.load(logits + tl.load(record) * stride + tokens, mask=exists, other=0.0)
    x = x.to(tl.float32)
    if mask >= 0:
        word = tokens // 32
        bits = tl.load(masks + mask * mask_words + word, mask=exists & (word < mask_words), other=0)
        x = tl.where(((bits >> (tokens % 32)) & 1) != 0, x, float("-inf"))
    if hidden != 0:
        flags = tl.load(hidden.to(tl.pointer_type(tl.int8)) + tokens, mask=exists, other=0)
        x = tl.where(flags != 0, float("-inf"), x)
    tl.store(edited + place * vocabulary + tokens, x, mask=exists)


@triton.jit
def _hide(row, ids, count, BLOCK: tl.constexpr):
    for first in range(0, count.to(tl.int32), BLOCK):
        places = first + tl.arange(0, BLOCK)
        tokens = tl.load(ids + places, mask=places < count, other=0)
        tl.store(row + tokens, float("-inf"), mask=places < count)


@triton.jit
def _edit_tokens(
    records,
    factors,
    endings,
    update_places,
    update_ids,
    update_counts,
    edited,
    vocabulary,
    BLOCK: tl.constexpr,
):
    """Edit single tokens of a row. Within one step of these, no token comes twice."""
    place = tl.program_id(0).to(tl.int64)
    record = records + place * _WORDS
    row = edited + place * vocabulary
    ids_type = tl.pointer_type(tl.int64)
    values_type = tl.pointer_type(tl.float32)
    _hide(row, tl.load(record + 3).to(ids_type), tl.load(record + 4), BLOCK)
    _hide(row, endings + tl.load(record + 5), tl.load(record + 6), BLOCK)
    _hide(row, tl.load(record + 7).to(ids_type), tl.load(record + 8), BLOCK)

    counted = tl.load(record + 12).to(ids_type)
    counts = tl.load(record + 13).to(values_type)
    new = tl.load(record + 15)
    num_new = tl.load(record + 16)
    for first in range(0, num_new.to(tl.int32), BLOCK):
        places = first + tl.arange(0, BLOCK)
        is_new = places < num_new
        target = tl.load(update_places + new + places, mask=is_new, other=0)
        ids = tl.load(update_ids + new + places, mask=is_new, other=0)
        tl.store(counted + target, ids, mask=is_new)
        values = tl.load(update_counts + new + places, mask=is_new, other=0.0)
        tl.store(counts + target, values, mask=is_new)
    tl.debug_barrier()  # threads read what others wrote

    biased = tl.load(record + 9).to(ids_type)
    biases = tl.load(record + 10).to(values_type)
    num_biased = tl.load(record + 11)
    for first in range(0, num_biased.to(tl.int32), BLOCK):
        places = first + tl.arange(0, BLOCK)
        tokens = tl.load(biased + places, mask=places < num_biased, other=0)
        added = tl.load(biases + places, mask=places < num_biased, other=0.0)
        x = tl.load(row + tokens, mask=places < num_biased, other=0.0)
        tl.store(row + tokens, x + added, mask=places < num_biased)
    tl.debug_barrier()

    repetition = tl.load(factors + place * 3)
    frequency = tl.load(factors + place * 3 + 1)
    presence = tl.load(factors + place * 3 + 2)
    num_counted = tl.load(record + 14)
    for first in range(0, num_counted.to(tl.int32), BLOCK):
        places = first + tl.arange(0, BLOCK)
        is_counted = places < num_counted
        tokens = tl.load(counted + places, mask=is_counted, other=0)
        count = tl.load(counts + places, mask=is_counted, other=0.0)
        x = tl.load(row + tokens, mask=is_counted, other=0.0)
        x = tl.where(x > 0, tl.div_rn(x, repetition), x * repetition)
        x = x - frequency * count
        x = x - tl.where(count > 0, presence, 0.0)
        tl.store(row + tokens, x, mask=is_counted)


def edit_rows(logits: Tensor, edits: Edits, *, masks_only: bool = False) -> Tensor:
    """Return the rows of ``logits`` [rows, vocabulary], float32 or narrower, that the records name,
    edited: float32 [records, vocabulary]. ``edits``: on the device, and so is all that the records'
    addresses lead to, which the caller keeps until the kernels have run. ``masks_only``: no record
    ``edits_tokens``."""
    count, vocabulary = len(edits.records), logits.shape[1]
    edited = torch.empty(count, vocabulary, dtype=torch.float32, device=logits.device)
    block = min(_BLOCK, max(16, triton.next_power_of_2(vocabulary)))
    _copy_allowed[(count, triton.cdiv(vocabulary, block))](
        logits,
        edits.records,
        edits.masks,
        edited,
        row_stride(logits),
        vocabulary,
        edits.masks.shape[1],
        BLOCK=block,
        num_warps=8,
    )
    if not masks_only:
        _edit_tokens[(count,)](
            edits.records,
            edits.factors,
            edits.endings,
            edits.update_places,
            edits.update_ids,
            edits.update_counts,
            edited,
            vocabulary,
            BLOCK=_LIST_BLOCK,
            num_warps=4,
        )
    return edited
