/* Products of weights whose scales are integers times a float for each super-block of SUPER groups:
 * the kinds NIBBLES_K and BYTES_K of integers.h.
 *
 * A row's inputs have one scale for a super-block too, so that all that belongs to one is added up in
 * integers, the weights' scales included:
 *     x . w = scale (d sum_g s_g sum_i code_i x_i - e sum_g m_g sum_i x_i)
 * The sums of integers are exact in any order; only a super-block's are rounded to float32.
 */
#pragma once
#include "integers.h"

#define SUPER_INPUTS (SUPER * GROUP_INPUTS)

/* SUPER_INPUTS inputs of a row, in whole cache lines. */
typedef struct {
  int8_t codes[SUPER_INPUTS];
  int32_t minus_128[2 * SUPER]; /* times the sum of each half group's codes: what undoes an offset */
  int32_t pairs[SUPER / 2];     /* sums of two adjacent groups' codes, as pairs of int16 */
  int32_t halves[SUPER];        /* sums of the codes of a group's two halves, as a pair of int16 */
  float scale;
} __attribute__((aligned(64))) super_block;

INLINE int64_t super_bytes(int kind) { return header_bytes(kind) + SUPER * group_bytes(kind); }
INLINE int lines_of(int kind) { return (int)(super_bytes(kind) / 64); }
INLINE int super_blocks_of(int inputs) { return inputs / SUPER_INPUTS; }

static void round_super_block(const float *x, super_block *to) {
  vec most = {0}, odd = {0};
  int32_t sums[SUPER][2];
  for (int g = 0; g < SUPER; g++) measure_group(x + g * GROUP_INPUTS, &most, &odd);
  const float peak = largest(most), inverse = inverse_of(peak);
  for (int g = 0; g < SUPER; g++) {
    round_codes(x + g * GROUP_INPUTS, inverse, to->codes + g * GROUP_INPUTS, sums[g]);
    for (int half = 0; half < 2; half++) to->minus_128[2 * g + half] = -128 * sums[g][half];
    to->halves[g] = pair_of(sums[g][0], sums[g][1]);
  }
  for (int g = 0; g < SUPER; g += 2)
    to->pairs[g / 2] = pair_of(sums[g][0] + sums[g][1], sums[g + 1][0] + sums[g + 1][1]);
  to->scale = peak / 127.0f + sum(odd);
}

static void round_super_blocks(const float *x, int64_t stride, int rows, int inputs,
                               super_block *to) {
  for (int r = 0; r < rows; r++, x += stride)
    for (int i = 0; i < inputs; i += SUPER_INPUTS) round_super_block(x + i, to++);
}

/* A super-block's scales of LANES outputs, from the first in the panel, `at`. */
INLINE ivec scales_of_group(const int kind, const char *scales, int half, int at) {
  return kind == NIBBLES_K ? load_uint8(scales + at) : load_int8(scales + PANEL * half + at);
}

/* The minimums of two adjacent groups, as pairs. */
INLINE ivec minimums_of_groups(const char *scales, int at) {
  const char *first = scales + PANEL + at;
  return load_uint8(first) | load_uint8(first + group_bytes(NIBBLES_K)) << 16;
}

/* What a super-block's sums of integers are multiplied by for LANES outputs. */
typedef struct {
  vec scale, minimum;
  ivec minimums[SUPER / 2];
} super_factors;

INLINE super_factors factors_of_super(const int kind, const char *header, int at) {
  super_factors f;
  f.scale = load_float16(header + 2 * at);
  if (kind == NIBBLES_K) {
    const char *scales = header + header_bytes(kind);
    f.minimum = load_float16(header + 2 * (PANEL + at));
    for (int g = 0; g < SUPER; g += 2, scales += 2 * group_bytes(kind))
      f.minimums[g / 2] = minimums_of_groups(scales, at);
  }
  return f;
}

INLINE vec add_super_block(const int kind, vec acc, ivec whole, const super_factors *f,
                           const super_block *x) {
  acc += to_floats(whole) * (f->scale * x->scale);
  if (kind == NIBBLES_K) {
    ivec least = {0};
    for (int pair = 0; pair < SUPER / 2; pair++)
      least = dot_shorts(least, f->minimums[pair], splat_integer(&x->pairs[pair]));
    acc -= to_floats(least) * (f->minimum * x->scale);
  }
  return acc;
}

/* A group of BYTES_K: adds its products, times the scales of its halves, to `whole`. */
INLINE void add_bytes_of_group(const int R, const int H, const int h, const super_block *x,
                               int64_t stride, const char *scales, int g,
                               ivec whole[INTEGER_ROWS][2]) {
  const char *codes = scales + scales_bytes(BYTES_K) + h * LANES * 4;
  ivec scale[2][2];
  for (int half = 0; half < 2; half++)
    for (int p = 0; p < H; p++)
      scale[half][p] = scales_of_group(BYTES_K, scales, half, LANES * (h + p));
#pragma GCC unroll 1
  for (int half = 0; half < 2; half++) {
    const int64_t begin = g * GROUP_INPUTS + half * GROUP_INPUTS / 2;
#if HAS_VNNI
    ivec t[INTEGER_ROWS][2];
    EACH_SUM t[r][p] = splat_integer(&x[r * stride].minus_128[2 * g + half]);
#pragma GCC unroll 1
    for (int k = 0; k < STEPS / 2; k++, codes += PANEL * 4)
      EACH_SUM t[r][p] = add_bytes(0, t[r][p], load_bytes(codes + p * LANES * 4),
                                   splat_codes(x[r * stride].codes + begin + 4 * k));
    EACH_SUM whole[r][p] = add_scaled(whole[r][p], t[r][p], scale[half][p]);
#else
    ivec twice[2];
    for (int p = 0; p < H; p++) twice[p] = repeated(scale[half][p]);
    UNROLL_STEPS
    for (int k = 0; k < STEPS / 2; k += 2, codes += PANEL * 8) {
      ivec c[2][2];
      for (int p = 0; p < H; p++)
        for (int i = 0; i < 2; i++)
          c[p][i] = plus_32(load_bytes(codes + (i * PANEL + p * LANES) * 4));
      EACH_SUM {
        const ivec t = products_of_two(c[p], x[r * stride].codes + begin + 4 * k);
        whole[r][p] = keep_order(dot_shorts(whole[r][p], t, twice[p]));
      }
    }
#endif
  }
#if !HAS_VNNI
  ivec offset[2]; /* -32 times the scales: what undoes `plus_32` */
  for (int p = 0; p < H; p++)
    offset[p] = (scale[0][p] * -32 & 0xffff) | (scale[1][p] * -32) << 16;
  EACH_SUM whole[r][p] =
      keep_order(dot_shorts(whole[r][p], offset[p], splat_integer(&x[r * stride].halves[g])));
#endif
}

/* R rows by H halves of a panel, from half `h` on, over a super-block that begins at `header`. */
INLINE void super_part(const int kind, const int R, const int H, const int h, const super_block *x,
                       int64_t stride, const char *header, prefetch ahead, float *sums) {
  const char *scales = header + header_bytes(kind);
  ivec whole[INTEGER_ROWS][2];
  EACH_SUM whole[r][p] = (ivec){0};
#pragma GCC unroll 1
  for (int g = 0; g < SUPER; g++, scales += group_bytes(kind)) {
    const char *codes = scales + scales_bytes(kind) + h * LANES * 4;
    prefetch_group(kind, H, h, scales, ahead);
    ivec t[INTEGER_ROWS][2], scale[2]; /* t: sums of products */
    if (kind == NIBBLES_K) {
      EACH_SUM t[r][p] = (ivec){0};
      UNROLL_STEPS
      for (int k = 0; k < STEPS; k += 2, codes += PANEL * 4) {
        ivec a[2], b[2];
        for (int p = 0; p < H; p++) {
          const ivec both = load_bytes(codes + p * LANES * 4);
          a[p] = both & 0x0f0f0f0f;
          b[p] = (both >> 4) & 0x0f0f0f0f;
        }
        EACH_SUM {
          const int8_t *from = x[r * stride].codes + g * GROUP_INPUTS + 4 * k;
          t[r][p] = add_nibbles(t[r][p], a[p], splat_codes(from));
          t[r][p] = add_nibbles(t[r][p], b[p], splat_codes(from + 4));
        }
      }
      for (int p = 0; p < H; p++)
        scale[p] = factors_of_sums(scales_of_group(kind, scales, 0, LANES * (h + p)));
      EACH_SUM whole[r][p] = add_scaled(whole[r][p], t[r][p], scale[p]);
    } else
      add_bytes_of_group(R, H, h, x, stride, scales, g, whole);
  }
  super_factors f[2];
  for (int p = 0; p < H; p++) f[p] = factors_of_super(kind, header, LANES * (h + p));
  EACH_SUM {
    float *to = sums + r * PANEL + (h + p) * LANES;
    store(to, add_super_block(kind, load(to), whole[r][p], &f[p], x + r * stride));
  }
}

typedef void (*super_function)(const super_block *x, int64_t stride, const char *header,
                               prefetch ahead, float *sums);
#define SUPER_TILE(KIND, R)                                                                     \
  static void super_##KIND##_##R(const super_block *x, int64_t stride, const char *header,      \
                                 prefetch ahead, float *sums) {                                    \
    if (R <= most_whole_panel_rows(KIND))                                                       \
      super_part(KIND, R, 2, 0, x, stride, header, ahead, sums);                                \
    else                                                                                        \
      for (int h = 0; h < 2; h++) super_part(KIND, R, 1, h, x, stride, header, ahead, sums);    \
  }
#define SUPER_ENTRY(KIND, R) [KIND == BYTES_K][R] = super_##KIND##_##R,
#define EACH_SUPER(DO) EACH_HEIGHT(DO, NIBBLES_K) EACH_HEIGHT(DO, BYTES_K)
EACH_SUPER(SUPER_TILE)
static const super_function super_tiles[2][INTEGER_ROWS + 1] = {EACH_SUPER(SUPER_ENTRY)};

#if HAS_TILES
#define SUPER_TILES (SUPER_INPUTS / TILE_BYTES)

/* A super-block's codes times their scales, for LANES outputs: low + (high << split_bits). */
typedef char split_codes[2][SUPER_TILES][TILE_HEIGHT][TILE_BYTES];
INLINE int split_bits(int kind) { return kind == NIBBLES_K ? 3 : 7; }

/* Codes of 4 bits times scales of 6: the scale is split, and two codes are multiplied as one. */
INLINE void split_nibbles(const char *codes, ivec scale, char *low, char *high) {
  const shorts small = (shorts)repeated(scale & 7), large = (shorts)repeated(scale >> 3);
  for (int k = 0; k < STEPS; k += 2, codes += PANEL * 4) {
    const ivec both = load_bytes(codes);
    const shorts a = (shorts)(both & 0x0f0f0f0f), b = (shorts)((both >> 4) & 0x0f0f0f0f);
    *(memory_ivec *)(low + k * TILE_BYTES) = (ivec)(a * small);
    *(memory_ivec *)(low + (k + 1) * TILE_BYTES) = (ivec)(b * small);
    *(memory_ivec *)(high + k * TILE_BYTES) = (ivec)(a * large);
    *(memory_ivec *)(high + (k + 1) * TILE_BYTES) = (ivec)(b * large);
  }
}

/* Codes of 6 bits times scales of 8, for half a group: the product is split. */
INLINE void split_bytes(const char *codes, ivec scale, char *low, char *high) {
  const shorts by = (shorts)repeated(scale);
  for (int k = 0; k < STEPS / 2; k++, codes += PANEL * 4) {
    const shorts both = (shorts)load_bytes(codes);
    const shorts even = (both << 8 >> 8) * by, odd = (both >> 8) * by;
    *(memory_ivec *)(low + k * TILE_BYTES) = either_byte((ivec)even, (ivec)(odd << 8)) & 0x7f7f7f7f;
    *(memory_ivec *)(high + k * TILE_BYTES) = either_byte((ivec)(even >> 7), (ivec)(odd << 1));
  }
}

INLINE void split_super_block(const int kind, const char *scales, int h, split_codes to,
                              later_lines *later) {
  char *low = to[0][0][0], *high = to[1][0][0];
  for (int g = 0; g < SUPER; g++, scales += group_bytes(kind)) {
    const char *codes = scales + scales_bytes(kind) + h * LANES * 4;
    fetch_some(later, lines_of(kind) / 48 + 1);
    for (int half = 0; half < (kind == NIBBLES_K ? 1 : 2); half++) {
      const ivec scale = scales_of_group(kind, scales, half, LANES * h);
      const int64_t step = STEPS / 2 * half;
      if (kind == NIBBLES_K)
        split_nibbles(codes, scale, low, high);
      else
        split_bytes(codes + step * PANEL * 4, scale, low + step * TILE_BYTES,
                    high + step * TILE_BYTES);
    }
    low += STEPS * TILE_BYTES, high += STEPS * TILE_BYTES;
  }
}

/* sums[rows][PANEL] += those of the super-block that begins at `header`. */
INLINE void super_block_in_tiles(const int kind, const char *header, const super_block *x,
                                 int64_t stride, int rows, float *sums) {
  const int tiles = (rows + TILE_HEIGHT - 1) / TILE_HEIGHT, height = (rows + tiles - 1) / tiles;
  const char *scales = header + header_bytes(kind);
  split_codes split[2] __attribute__((aligned(64)));
  int32_t found[4][TILE_HEIGHT][LANES] __attribute__((aligned(64)));
  later_lines later = {header + super_bytes(kind), header + 2 * super_bytes(kind)};
  for (int h = 0; h < 2; h++) split_super_block(kind, scales, h, split[h], &later);
  for (int r = 0; r < rows; r += height) {
    const super_block *own = x + r * stride;
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
#pragma GCC unroll 1
    for (int k = 0; k < SUPER_TILES; k++) {
      fetch_some(&later, lines_of(kind) / 6 + 1);
      TILE_LOAD(4, own->codes + k * TILE_BYTES, stride * (int64_t)sizeof(super_block));
      TILE_LOAD(6, split[0][0][k], TILE_BYTES);
      TILE_ADD_BYTES(0, 4, 6);
      TILE_LOAD(7, split[0][1][k], TILE_BYTES);
      TILE_ADD_BYTES(1, 4, 7);
      TILE_LOAD(6, split[1][0][k], TILE_BYTES);
      TILE_ADD_BYTES(2, 4, 6);
      TILE_LOAD(7, split[1][1][k], TILE_BYTES);
      TILE_ADD_BYTES(3, 4, 7);
    }
    TILE_STORE(0, found[0], TILE_BYTES);
    TILE_STORE(1, found[1], TILE_BYTES);
    TILE_STORE(2, found[2], TILE_BYTES);
    TILE_STORE(3, found[3], TILE_BYTES);
    for (int h = 0; h < 2; h++) {
      const super_factors f = factors_of_super(kind, header, LANES * h);
      float *to = sums + r * PANEL + h * LANES;
      for (int n = 0; n < height && r + n < rows; n++, to += PANEL) {
        const ivec low = load_bytes(found[2 * h][n]), high = load_bytes(found[2 * h + 1][n]);
        const ivec whole = low + (high << split_bits(kind));
        store(to, add_super_block(kind, load(to), whole, &f, own + n * stride));
      }
    }
  }
}

static void sum_super_block_in_tiles(int kind, const char *header, const super_block *x,
                                     int64_t stride, int rows, float *sums) {
  if (kind == NIBBLES_K)
    super_block_in_tiles(NIBBLES_K, header, x, stride, rows, sums);
  else
    super_block_in_tiles(BYTES_K, header, x, stride, rows, sums);
}
#else
static void sum_super_block_in_tiles(int kind, const char *header, const super_block *x,
                                     int64_t stride, int rows, float *sums) {
  (void)kind, (void)header, (void)x, (void)stride, (void)rows, (void)sums;
}
#endif

/* sums[rows][PANEL] += those of a panel. */
static void sum_super_blocks(int kind, const char *panel, int inputs, const super_block *x,
                             int rows, float *sums) {
  const int64_t stride = super_blocks_of(inputs), bytes = super_bytes(kind);
  for (int n = 0; n < stride; n++, panel += bytes, x++) {
    if (rows >= least_tiled_rows(kind)) {
      sum_super_block_in_tiles(kind, panel, x, stride, rows, sums);
      continue;
    }
    prefetch ahead = prefetch_for(kind, rows, bytes);
    for (int r = 0, left = ahead.turns; left; left--, ahead.turn++) {
      const int height = (rows - r + left - 1) / left;
      super_tiles[kind == BYTES_K][height](x + r * stride, stride, panel, ahead, sums + r * PANEL);
      r += height;
    }
  }
}
