"""Log-probabilities and ranks of given tokens, without a log-softmax of the whole vocabulary."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.launch import row_stride

_BLOCK = 2048


@triton.jit
def _token_logprobs(logits, tokens, logprobs, ranks, stride, vocabulary, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    own = tl.load(logits + tl.load(tokens + row)).to(tl.float32)
    peaks = tl.full([BLOCK], float("-inf"), tl.float32)
    masses = tl.zeros([BLOCK], tl.float32)
    above = tl.zeros([BLOCK], tl.int32)
    for first in range(0, vocabulary, BLOCK):
        places = first + tl.arange(0, BLOCK)
        x = tl.load(logits + places, mask=places < vocabulary, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(peaks, x)
        level = tl.where(higher == float("-inf"), 0.0, higher)
        masses = masses * tl.exp(peaks - level) + tl.exp(x - level)
        peaks = higher
        above += (x > own).to(tl.int32)
    peak = tl.max(peaks, 0)
    mass = tl.sum(masses * tl.exp(peaks - peak), 0)
    tl.store(logprobs + row, own - peak - tl.log(mass))
    tl.store(ranks + row, tl.sum(above, 0) + 1)


def gather_logprobs(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return float32 and int32 [rows]: the log-probability of ``tokens`` (integers [rows]) under
    the softmax of ``logits`` [rows, vocabulary], and its rank: 1 for the most likely; tokens with
    equal logits share the best rank. Each row needs a finite logit."""
    rows, vocabulary = logits.shape
    logprobs = torch.empty(rows, dtype=torch.float32, device=logits.device)
    ranks = torch.empty(rows, dtype=torch.int32, device=logits.device)
    _token_logprobs[(rows,)](
        logits,
        tokens,
        logprobs,
        ranks,
        row_stride(logits),
        vocabulary,
        BLOCK=min(_BLOCK, triton.next_power_of_2(vocabulary)),
        num_warps=8,
    )
    return logprobs, ranks
