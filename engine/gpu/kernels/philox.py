"""The random numbers of ``engine.sampling.random`` on the device, identical to the last bit.

Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

import triton
import triton.language as tl


@triton.jit
def uniform(seed, position):
    """Return the float64 in [0, 1) that ``engine.sampling.random.uniforms`` returns, with 53 random
    bits, for int64 ``seed`` (read as unsigned) and ``position``, which must be at least 0."""
    low = 0xFFFFFFFF
    key = seed.to(tl.uint64, bitcast=True)
    counter = position.to(tl.int64).to(tl.uint64, bitcast=True)
    k0 = key & low
    k1 = key >> 32
    c0 = counter & low
    c1 = counter >> 32
    c2 = c0 ^ c0
    c3 = c2
    for _ in tl.static_range(10):
        product0 = c0 * 0xD2511F53
        product1 = c2 * 0xCD9E8D57
        c0 = (product1 >> 32) ^ c1 ^ k0
        c1 = product1 & low
        c2 = (product0 >> 32) ^ c3 ^ k1
        c3 = product0 & low
        k0 = (k0 + 0x9E3779B9) & low
        k1 = (k1 + 0xBB67AE85) & low
    bits = ((c0 >> 5) << 26) | (c1 >> 6)
    return bits.to(tl.int64, bitcast=True).to(tl.float64) * 1.1102230246251565e-16
