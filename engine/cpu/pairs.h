/* Products of rows of bfloat16 with panels of bfloat16 pairs in AMX tiles, for linear.h.
 *
 * Two tiles of rows are multiplied with the two halves of a panel, 32 inputs at a time. A row's sums
 * are computed in the same order in any tile, so they do not depend on the other rows. */
#pragma once
#include "tiles.h"

#define TILE_INPUTS 32 /* pairs of inputs have room for a multiple of this */
#if HAS_TILES
#define PAIR_INPUTS TILE_INPUTS
#else
#define PAIR_INPUTS 2
#endif

#if HAS_TILES
#define TILED_BLOCK (16 * TILE_INPUTS) /* inputs: a panel's stay in the L1 cache */
#define TILED_AHEAD 4096 /* bytes to prefetch ahead where weights are read only once */

/* R tiles of rows over a block of inputs: sums[R * height][PANEL] += x . weights of a panel. */
INLINE void pair_tiles(const int R, const uint16_t *x, int64_t stride, int height, const char *w,
                       int inputs, int64_t ahead, float *sums) {
  const int64_t width = PANEL * sizeof(float), next = (int64_t)height * PANEL;
  TILE_LOAD(0, sums, width);
  TILE_LOAD(1, sums + LANES, width);
  if (R == 2) TILE_LOAD(2, sums + next, width);
  if (R == 2) TILE_LOAD(3, sums + next + LANES, width);
  for (int k = 0; k < inputs; k += TILE_INPUTS, w += TILE_INPUTS * PANEL * 2) {
    if (ahead)
#pragma GCC unroll 32
      for (int line = 0; line < TILE_INPUTS * PANEL * 2; line += 64)
        __builtin_prefetch(w + ahead + line);
    TILE_LOAD(4, x + k, stride * 2);
    TILE_LOAD(6, w, width);
    TILE_LOAD(7, w + TILE_BYTES, width);
    if (R == 2) TILE_LOAD(5, x + height * stride + k, stride * 2);
    TILE_ADD_PAIRS(0, 4, 6);
    TILE_ADD_PAIRS(1, 4, 7);
    if (R == 2) TILE_ADD_PAIRS(2, 5, 6);
    if (R == 2) TILE_ADD_PAIRS(3, 5, 7);
  }
  TILE_STORE(0, sums, width);
  TILE_STORE(1, sums + LANES, width);
  if (R == 2) TILE_STORE(2, sums + next, width);
  if (R == 2) TILE_STORE(3, sums + next + LANES, width);
}

/* sums[count][height][PANEL] += those of a panel, for `count` tiles of rows. */
static void sum_tiles(const char *w, int inputs, const uint16_t *x, int64_t stride, int height,
                      int count, float *sums) {
  const int block = count > 2 ? TILED_BLOCK : inputs;
  for (int k = 0; k < inputs; k += block, w += (int64_t)block * PANEL * 2) {
    const int some = inputs - k < block ? inputs - k : block;
    /* The first of a block's tiles prefetches the next block while the others compute. */
    int64_t ahead = count > 2 ? (int64_t)block * PANEL * 2 : TILED_AHEAD;
    for (int n = 0; n < count; n += 2, ahead = 0) {
      const uint16_t *from = x + n * height * stride + k;
      float *to = sums + (int64_t)n * height * PANEL;
      if (n + 1 < count)
        pair_tiles(2, from, stride, height, w, some, ahead, to);
      else
        pair_tiles(1, from, stride, height, w, some, ahead, to);
    }
  }
}
#endif
