/* Products of integers in AMX tiles, for integers.h: a tile of rows by half a panel, one group of
 * inputs at a time. The sums are then scaled as those of the vector instructions are, to the same
 * bits. */
#pragma once
#include "tiles.h"

#if HAS_TILES
/* With fewer rows the vector instructions are faster. */
INLINE int least_tiled_rows(int kind) {
  return has_super_blocks(kind) ? 5 : has_halves(kind) ? 16 : 8;
}

/* Inputs that share a scale and so a sum, in units of 4. */
INLINE int tile_depth(int kind) {
  return has_super_blocks(kind) ? TILE_HEIGHT : has_halves(kind) ? STEPS / 2 : STEPS;
}

/* The memory that is read next. Prefetches of a few lines are spread over the computation: a core
 * that has too many lines to wait for stops. */
typedef struct {
  const char *next, *end;
} later_lines;
INLINE void fetch_some(later_lines *later, int lines) {
  for (; lines && later->next < later->end; lines--, later->next += 64)
    __builtin_prefetch(later->next);
}

/* Unpacks a group's codes for half a panel to bytes, [STEPS][LANES][4]. */
INLINE void unpack_nibbles(const int kind, const char *codes, char *to) {
  for (int k = 0; k < STEPS; k += 2, codes += PANEL * 4) {
    const ivec both = load_bytes(codes);
    ivec a = both & 0x0f0f0f0f, b = (both >> 4) & 0x0f0f0f0f;
    if (kind == NIBBLES_MX) a = levels_of(a), b = levels_of(b);
    if (kind == NIBBLES) a = minus_eight(a), b = minus_eight(b);
    *(memory_ivec *)(to + k * LANES * 4) = a;
    *(memory_ivec *)(to + (k + 1) * LANES * 4) = b;
  }
}

/* The integer sums of a tile of rows by half a panel: of each group, or each half of its inputs. */
typedef int32_t tile_sums[INTEGER_BLOCK][2][TILE_HEIGHT][LANES];

/* `codes`: of the first group; `group_step` and `step`: bytes from a group to the next, and from 4
 * inputs to the next. Tiles take turns, so that the next products need not wait for those before. */
INLINE void multiply_tile(const int kind, const eighth *x, int64_t stride, int groups,
                          const char *codes, int64_t group_step, int64_t step, tile_sums found,
                          later_lines *later) {
  const int64_t next = stride * (int64_t)sizeof(eighth);
#define MULTIPLY(sums, inputs, weights, from, at, to) \
  TILE_ZERO(sums);                                    \
  TILE_LOAD(inputs, from, next);                      \
  TILE_LOAD(weights, at, step);                       \
  TILE_ADD_BYTES(sums, inputs, weights);              \
  TILE_STORE(sums, to, TILE_BYTES)
  for (int g = 0; g < groups; g++, x++, codes += group_step) {
    fetch_some(later, (int)group_bytes(kind) / 256 + 1);
    if (has_halves(kind)) {
      MULTIPLY(0, 4, 6, x->codes, codes, found[g][0]);
      MULTIPLY(1, 5, 7, x->codes + GROUP_INPUTS / 2, codes + step * STEPS / 2, found[g][1]);
    } else if (g % 2) {
      MULTIPLY(1, 5, 7, x->codes, codes, found[g][0]);
    } else {
      MULTIPLY(0, 4, 6, x->codes, codes, found[g][0]);
    }
  }
#undef MULTIPLY
}

/* Scales the integer sums and adds them to sums[rows][PANEL], in half `h` of the panel. */
INLINE void scale_tile(const int kind, const eighth *x, int64_t stride, int rows,
                       const char *panel, int h, int first, int last, tile_sums found,
                       float *sums, later_lines *later) {
  vec acc[TILE_HEIGHT];
#define EACH_ROW _Pragma("GCC unroll 16") for (int r = 0; r < TILE_HEIGHT; r++)
  EACH_ROW acc[r] = r < rows ? load(sums + r * PANEL) : (vec){0};
  for (int g = first; g < last; g++, found++) {
    fetch_some(later, (int)group_bytes(kind) / 256 + 1);
    const eighth *own = x + g;
    const factors f = factors_of(kind, panel + group_begin(kind, g), LANES * h);
    EACH_ROW if (r < rows) {
      const eighth *e = own + r * stride;
      ivec sum = load_bytes((*found)[0][r]);
      if (kind == NIBBLES_ZERO) sum = less_zeros(sum, f.zero, e);
      acc[r] = add_group(kind, acc[r], sum, load_bytes((*found)[has_halves(kind)][r]), &f, e);
    }
  }
  EACH_ROW if (r < rows) store(sums + r * PANEL, acc[r]);
#undef EACH_ROW
}

/* sums[rows][PANEL] += those of a block of groups. */
INLINE void block_in_tiles(const int kind, const char *panel, int first, int last,
                           const eighth *x, int64_t stride, int rows, float *sums) {
  const int tiles = (rows + TILE_HEIGHT - 1) / TILE_HEIGHT, height = (rows + tiles - 1) / tiles;
  char unpacked[INTEGER_BLOCK * GROUP_INPUTS * LANES] __attribute__((aligned(64)));
  tile_sums found __attribute__((aligned(64)));
  const char *begin = panel + group_begin(kind, first);
  const int64_t bytes = (last - first) * group_bytes(kind);
  later_lines later = {begin + bytes, begin + 2 * bytes};
  for (int h = 0; h < 2; h++) {
    const char *codes = begin + scales_bytes(kind) + h * LANES * 4;
    int64_t group_step = group_bytes(kind), step = PANEL * 4;
    if (is_nibbles(kind)) {
      for (int g = 0; g < last - first; g++)
        unpack_nibbles(kind, codes + g * group_step, unpacked + g * GROUP_INPUTS * LANES);
      codes = unpacked, group_step = GROUP_INPUTS * LANES, step = LANES * 4;
    }
    for (int r = 0; r < rows; r += height) {
      const eighth *own = x + r * stride;
      multiply_tile(kind, own + first, stride, last - first, codes, group_step, step, found, &later);
      scale_tile(kind, own, stride, rows - r < height ? rows - r : height, panel, h, first, last,
                 found, sums + r * PANEL + h * LANES, &later);
    }
  }
}

#define BLOCK_IN_TILES(KIND)                                                                      \
  static void block_in_tiles_##KIND(const char *panel, int first, int last, const eighth *x,     \
                                    int64_t stride, int rows, float *sums) {                      \
    block_in_tiles(KIND, panel, first, last, x, stride, rows, sums);                              \
  }
BLOCK_IN_TILES(NIBBLES)
BLOCK_IN_TILES(BYTES)
BLOCK_IN_TILES(BYTES_FLOAT)
BLOCK_IN_TILES(NIBBLES_ZERO)
BLOCK_IN_TILES(NIBBLES_MX)

static void sum_block_in_tiles(int kind, const char *panel, int first, int last,
                               const eighth *x, int64_t stride, int rows, float *sums) {
  static void (*const blocks[])(const char *, int, int, const eighth *, int64_t, int,
                                float *) = {
      [NIBBLES - NIBBLES] = block_in_tiles_NIBBLES,
      [BYTES - NIBBLES] = block_in_tiles_BYTES,
      [BYTES_FLOAT - NIBBLES] = block_in_tiles_BYTES_FLOAT,
      [NIBBLES_ZERO - NIBBLES] = block_in_tiles_NIBBLES_ZERO,
      [NIBBLES_MX - NIBBLES] = block_in_tiles_NIBBLES_MX,
  };
  blocks[kind - NIBBLES](panel, first, last, x, stride, rows, sums);
}
#else
INLINE int least_tiled_rows(int kind) { return (void)kind, INT32_MAX; }
static void sum_block_in_tiles(int kind, const char *panel, int first, int last,
                               const eighth *x, int64_t stride, int rows, float *sums) {
  (void)kind, (void)panel, (void)first, (void)last, (void)x, (void)stride, (void)rows;
  (void)sums;
}
#endif
