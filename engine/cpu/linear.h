/* Linear maps: y = x W^T + bias for rows of floats.
 *
 * Weights are packed in panels of PANEL outputs, [panels][inputs][PANEL], so that a tile of a few
 * rows and panels stays in registers while the inputs stream through (after Goto and van de Geijn,
 * "Anatomy of High-Performance Matrix Multiplication", 2008). Weights smaller than float32 are
 * widened in registers, which is exact; all arithmetic is float32. The exception is pairs of
 * bfloat16, whose inputs are rounded to bfloat16 too, for hardware that multiplies such pairs and
 * adds in float32. Weights of few bits are multiplied in integers (integers.h).
 *
 * Inputs are processed in blocks short enough for a block of a panel to stay in the L1 cache while
 * all rows use it. Every sum is computed over a block, and then over the blocks, in the same order
 * for any tile, so a row's results do not depend on the other rows.
 */
#pragma once
#include <stdlib.h>
#include <string.h>

#include "threads.h"
#include "vectors.h"

#define PANEL (2 * LANES) /* outputs */
#include "integers.h"
#include "pairs.h"
#include "super_blocks.h"
/* A tile of R rows by P panels has 2 R P vectors of sums, besides two of weights and one of an
 * input. So 12 fit AVX2's 16 registers, 24 AVX-512's 32. */
#if LANES == 16
#define REGISTERS 32
#define TILE_ROWS 12      /* of the largest tile */
#define TWO_PANEL_ROWS 6  /* of the largest tile of two panels */
#else
#define REGISTERS 16
#define TILE_ROWS 6
#define TWO_PANEL_ROWS 3
#endif
#define MAX_ROWS 96    /* in a block of rows */
#define BLOCK (8192 / PANEL) /* inputs in a block */
#define ROWS_BYTES (256 << 10) /* a block of rows should stay in the L2 cache */
/* The same with AMX, whose products need more rows for each weight read, and whose L2 is larger. */
#define MAX_TILED_ROWS 256
#define TILED_ROWS_BYTES (1 << 20)
#define AHEAD 4096 /* bytes to prefetch ahead where weights are read only once */
#define LINE 64    /* bytes in a cache line */
/* Rows of scratch start at different offsets in the L1 cache, so that they do not collide. */
#define APART 16

enum { FLOAT32, BFLOAT16, BFLOAT16_PAIRS, KINDS, FLOAT16 /* only of the KV cache */ };

typedef struct {
  const void *weight;   /* packed */
  const float *bias;    /* [outputs], or NULL */
  int32_t inputs, outputs;
  int32_t kind;
  int32_t panel_inputs; /* inputs that a panel has room for; for pairs a multiple of PAIR_INPUTS */
  float scale;          /* of what is added to y */
} linear;

/* What is done with the sums. ADDED: y += scale (x W^T + bias). The others: panels of gate and up
 * alternate, y = activation(gate) up. */
enum { STORED, ADDED, GATED_SILU, GATED_GELU_TANH };

INLINE int64_t bytes_of(int kind, int64_t inputs) {
  return inputs * PANEL * (kind == FLOAT32 ? 4 : 2);
}

/* The bytes from one panel to the next. */
INLINE int64_t panel_bytes(const linear *l) {
  if (!is_integer(l->kind)) return bytes_of(l->kind, l->panel_inputs);
  const int groups = groups_of(l->inputs);
  return group_begin(l->kind, groups) - header_bytes(l->kind) * !(groups % SUPER);
}

/* The address `count` inputs further on in a row, as stored for this kind of weights. */
INLINE const void *further(int kind, const void *x, int64_t count) {
  return (const char *)x + count * (kind == BFLOAT16_PAIRS ? 2 : 4);
}

/* A panel's weights of one input, or of a pair of inputs: [PANEL][2], as stored. */
INLINE void widen(const int kind, const char *w, vec *low, vec *high) {
  if (kind == FLOAT32 || kind == BFLOAT16_PAIRS) {
    *low = load((const float *)w);
    *high = load((const float *)w + LANES);
  } else {
    /* Outputs i and i + LANES share 32 bits: a shift and a mask widen both. */
    ivec both = *(const memory_ivec *)w;
    *low = (vec)(both << 16);
    *high = (vec)(both & (int32_t)0xffff0000);
  }
}

/* R rows by P panels over a block of inputs: sums[p][r] += x[r] . weights of panel p.
 * `ahead`: how far after each weight read to prefetch memory; 0: not at all. */
INLINE void tile(const int kind, const int R, const int P, const void *x, int64_t stride,
                 const char *w, int64_t panel_bytes, int inputs, int64_t ahead, float *sums,
                 int64_t panel_sums) {
  const int step = kind == BFLOAT16_PAIRS ? 2 : 1;
  vec acc[TILE_ROWS][4][2]; /* constant sizes, so that they are kept in registers */
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) acc[r][p][0] = acc[r][p][1] = (vec){0};
  for (int k = 0; k < inputs; k += step)
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) {
      const char *at = w + p * panel_bytes + bytes_of(kind, k);
      const void *own = x;
      vec low, high;
      /* Otherwise GCC keeps the inputs in registers for the next panel and spills the sums. */
      if (2 * R * P + R + 2 > REGISTERS) own = opaque(own);
      widen(kind, at, &low, &high);
      /* To the L2 cache (see `prefetch` in integers.h). */
      if (ahead) __builtin_prefetch(at + ahead, 0, 2);
      if (ahead && bytes_of(kind, step) > LINE) __builtin_prefetch(at + ahead + LINE, 0, 2);
#pragma GCC unroll 16
      for (int r = 0; r < R; r++)
        if (kind == BFLOAT16_PAIRS) {
          const ivec pair = splat_pair((const uint16_t *)own + r * stride + k);
          acc[r][p][0] = dot_pairs(acc[r][p][0], (ivec)low, pair);
          acc[r][p][1] = dot_pairs(acc[r][p][1], (ivec)high, pair);
        } else {
          const vec value = splat(((const float *)own)[r * stride + k]);
          acc[r][p][0] += value * low;
          acc[r][p][1] += value * high;
        }
    }
#pragma GCC unroll 8
  for (int p = 0; p < P; p++)
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      float *to = sums + p * panel_sums + r * PANEL;
      store(to, load(to) + acc[r][p][0]);
      store(to + LANES, load(to + LANES) + acc[r][p][1]);
    }
}

typedef void (*tile_function)(const void *x, int64_t stride, const char *w, int64_t panel_bytes,
                              int inputs, int64_t ahead, float *sums, int64_t panel_sums);
#define TILE(KIND, R, P)                                                                        \
  static void tile_##KIND##_##R##_##P(const void *x, int64_t stride, const char *w,             \
                                      int64_t panel_bytes, int inputs, int64_t ahead,           \
                                      float *sums, int64_t panel_sums) {                        \
    tile(KIND, R, P, x, stride, w, panel_bytes, inputs, ahead, sums, panel_sums);               \
  }
#define ENTRY(KIND, R, P) [KIND][P][R] = tile_##KIND##_##R##_##P,

#define SHAPES_OF_12_SUMS(DO, KIND)                                                             \
  DO(KIND, 1, 4) DO(KIND, 1, 2) DO(KIND, 2, 2) DO(KIND, 3, 2)                                   \
  DO(KIND, 1, 1) DO(KIND, 2, 1) DO(KIND, 3, 1) DO(KIND, 4, 1) DO(KIND, 5, 1) DO(KIND, 6, 1)
#if LANES == 16
#define SHAPES(DO, KIND)                                                                        \
  SHAPES_OF_12_SUMS(DO, KIND) DO(KIND, 4, 2) DO(KIND, 5, 2) DO(KIND, 6, 2)                      \
  DO(KIND, 7, 1) DO(KIND, 8, 1) DO(KIND, 9, 1) DO(KIND, 10, 1) DO(KIND, 11, 1) DO(KIND, 12, 1)
#else
#define SHAPES(DO, KIND) SHAPES_OF_12_SUMS(DO, KIND)
#endif
#if BF16_PRODUCTS && !HAS_TILES
#define EACH(DO) SHAPES(DO, FLOAT32) SHAPES(DO, BFLOAT16) SHAPES(DO, BFLOAT16_PAIRS)
#else
#define EACH(DO) SHAPES(DO, FLOAT32) SHAPES(DO, BFLOAT16)
#endif
EACH(TILE)
/* By kind, panels and rows. */
static const tile_function tile_functions[KINDS][4 + 1][TILE_ROWS + 1] = {EACH(ENTRY)};

/* sums[panels][rows][PANEL] += those of the `count` panels that start at `panel`. x: floats; for
 * pairs: bfloat16. */
static void sum_panels(const linear *l, int panel, int count, const void *x, int64_t stride,
                       int rows, float *sums) {
  const int kind = l->kind, block = BLOCK;
  const int64_t size = panel_bytes(l), panel_sums = (int64_t)rows * PANEL;
  int wide = rows == 1 && count == 4 ? 4 : rows <= TWO_PANEL_ROWS && count % 2 == 0 ? 2 : 1;
  for (int p = 0; p < count; p += wide) {
    const char *w = (const char *)l->weight + (panel + p) * size;
    float *to = sums + p * panel_sums;
    for (int k = 0; k < l->inputs; k += block) {
      const int inputs = l->inputs - k < block ? l->inputs - k : block;
      const char *from = w + bytes_of(kind, k);
      /* The first of a panel's tiles prefetches the next block while the others compute. */
      int64_t ahead = wide > 1 ? AHEAD : bytes_of(kind, block);
      for (int r = 0, left = (rows + TILE_ROWS - 1) / TILE_ROWS; left; left--, ahead = 0) {
        const int height = (rows - r + left - 1) / left;
        tile_functions[kind][wide][height](further(kind, x, r * stride + k), stride, from, size,
                                           inputs, ahead, to + r * PANEL, panel_sums);
        r += height;
      }
    }
  }
}

/* The same in `tiles` AMX tiles of `height` rows each. */
static void sum_tiled_panels(const linear *l, int panel, int count, const void *x, int64_t stride,
                             int height, int tiles, float *sums) {
#if !HAS_TILES
  (void)l, (void)panel, (void)count, (void)x, (void)stride, (void)height, (void)tiles, (void)sums;
#else
  for (int p = 0; p < count; p++, sums += (int64_t)tiles * height * PANEL)
    sum_tiles((const char *)l->weight + (panel + p) * panel_bytes(l), l->panel_inputs, x, stride,
              height, tiles, sums);
#endif
}

/* The same for weights of few bits. */
static void sum_integer_panels(const linear *l, int panel, int count, const void *x, int rows,
                               int padded, float *sums) {
  const char *from = (const char *)l->weight + panel * panel_bytes(l);
  for (int p = 0; p < count; p++, from += panel_bytes(l), sums += (int64_t)padded * PANEL)
    if (has_super_blocks(l->kind))
      sum_super_blocks(l->kind, from, l->inputs, x, rows, sums);
    else
      sum_integers(l->kind, from, l->inputs, x, rows, sums);
}

/* Stores a panel's sums, plus bias, in y, or adds them to it, scaled. */
static void put(const linear *l, int panel, const float *sums, int rows, int added, float *y,
                int64_t stride) {
  const int first = panel * PANEL, width = l->outputs - first;
  for (int r = 0; r < rows; r++, sums += PANEL) {
    float *to = y + r * stride + first;
    if (width >= PANEL) {
      vec a = load(sums), b = load(sums + LANES);
      if (l->bias) a += load(l->bias + first), b += load(l->bias + first + LANES);
      if (added) a = a * l->scale + load(to), b = b * l->scale + load(to + LANES);
      store(to, a);
      store(to + LANES, b);
    } else
      for (int i = 0; i < width; i++) {
        const float found = sums[i] + (l->bias ? l->bias[first + i] : 0);
        to[i] = added ? found * l->scale + to[i] : found;
      }
  }
}

INLINE vec activated(const int outcome, vec x) {
  if (outcome == GATED_SILU) return x / (1 + vector_exp(-x));
  /* 0.5 (1 + tanh(y)) is the sigmoid of 2 y. */
  const vec inside = 1.5957691216057308f * (x + 0.044715f * x * x * x);
  return x / (1 + vector_exp(-inside));
}

/* Stores the result of two panels' sums, of gate and up, `padded` rows apart. */
INLINE void put_gated(const int outcome, const linear *l, int panel, const float *sums, int padded,
                      int rows, float *y, int64_t stride, int width) {
  const float *gates = sums, *ups = sums + (int64_t)padded * PANEL;
  const float *bias = l->bias ? l->bias + panel * PANEL : NULL;
  for (int half = 0; half < PANEL; half += LANES) {
    const int column = panel / 2 * PANEL + half;
    if (column >= width) break;
    for (int r = 0; r < rows; r++) {
      vec g = load(gates + r * PANEL + half), up = load(ups + r * PANEL + half);
      if (bias) g += load(bias + half), up += load(bias + PANEL + half);
      store(y + r * stride + column, activated(outcome, g) * up);
    }
  }
}

/* This thread's buffer. It is never freed: threads that compute live as long as the process. */
static void *own_room(int64_t bytes) {
  static _Thread_local void *room;
  static _Thread_local int64_t size;
  if (size < bytes) {
    free(room);
    room = aligned_alloc(LINE, (bytes + LINE - 1) / LINE * LINE);
    if (!room) abort(); /* without a few megabytes nothing can continue */
    size = bytes;
  }
  return room;
}

/* Rounds rows to bfloat16, `to_stride` values apart; zeros follow up to a multiple of PAIR_INPUTS. */
static void round_rows(const float *x, int64_t stride, int rows, int inputs, uint16_t *to,
                       int64_t to_stride) {
  for (int r = 0; r < rows; r++, x += stride, to += to_stride) {
    const int whole = inputs / LANES * LANES;
    float rest[LANES] = {0};
    for (int i = 0; i < whole; i += LANES) store_halves(to + i, to_bfloat16(load(x + i)));
    memcpy(rest, x + whole, sizeof(float) * (inputs - whole));
    if (whole < inputs) store_halves(to + whole, to_bfloat16(load(rest)));
    for (int i = whole + LANES * (whole < inputs); i % PAIR_INPUTS; i++) to[i] = 0;
  }
}

/* This thread's buffer of rounded rows, and the first of them; negative: there are none. */
typedef struct {
  void *rows;
  int first;
} room_of_rows;

static int panels_of(const linear *l) { return (l->outputs + PANEL - 1) / PANEL; }

/* Panels that are computed together. */
static int unit_of(int outcome) { return outcome >= GATED_SILU ? 2 : 1; }

/* Whether rows are rounded before they are multiplied by weights of this kind. */
INLINE int rounds_rows(int kind) { return kind == BFLOAT16_PAIRS || is_integer(kind); }

/* Rows that are computed together at most. */
INLINE int most_rows(const linear *l) {
  const int paired = l->kind == BFLOAT16_PAIRS, tiled = HAS_TILES && rounds_rows(l->kind);
  const int multiple = tiled ? 2 * TILE_HEIGHT : TILE_ROWS, least = tiled ? multiple : 2 * TILE_ROWS;
  const int limit = tiled ? MAX_TILED_ROWS : MAX_ROWS, bytes = tiled ? TILED_ROWS_BYTES : ROWS_BYTES;
  const int fit = bytes / (tiled || paired ? 2 : 4) / l->inputs / multiple * multiple;
  return fit < least ? least : fit > limit ? limit : fit;
}

/* Rounds a block of rows for this kind of weights, in this thread's buffer; zeros follow up to
 * `padded` rows. */
static void *rounded_rows(const linear *l, const float *x, int64_t stride, int height, int padded,
                          int64_t to_stride) {
  if (l->kind == BFLOAT16_PAIRS) {
    uint16_t *to = own_room(padded * to_stride * sizeof(uint16_t));
    round_rows(x, stride, height, l->inputs, to, to_stride);
    memset(to + height * to_stride, 0, (padded - height) * to_stride * sizeof(uint16_t));
    return to;
  }
  const int supers = has_super_blocks(l->kind);
  const int64_t bytes = supers ? super_blocks_of(l->inputs) * (int64_t)sizeof(super_block)
                               : row_groups(l->inputs) * (int64_t)sizeof(eighth);
  char *to = own_room(padded * bytes);
  if (supers)
    round_super_blocks(x, stride, height, l->inputs, (super_block *)to);
  else
    round_inputs(x, stride, height, l->inputs, (eighth *)to);
  memset(to + height * bytes, 0, (padded - height) * bytes);
  return to;
}

/* The number of blocks into which rows are divided, so that each stays in the L2 cache. */
static int row_blocks(const linear *l, int rows) { return (rows + most_rows(l) - 1) / most_rows(l); }

/* Returns the height of block `b` of the rows, and where it begins in `*row`. */
INLINE int block_of_rows(int rows, int blocks, int b, int *row) {
  int end;
  share(rows, blocks, b, row, &end);
  return end - *row;
}

/* y[r] = the result of x[r] W^T + bias, for a block of `height` rows from `row` on and units
 * first .. last of panels. `width`: of y. `room`: kept between calls for the same block. */
static void apply_block(const linear *l, int first, int last, const float *x, int64_t in_stride,
                        int row, int height, float *y, int64_t out_stride, int width, int outcome,
                        room_of_rows *room) {
  const int unit = unit_of(outcome), paired = l->kind == BFLOAT16_PAIRS;
  const int integer = is_integer(l->kind), usual = height == 1 ? 4 : 2;
  const int64_t rounded = l->inputs + 2 * APART, stride = paired ? rounded : in_stride;
  const int tiled = HAS_TILES && (paired || (integer && height >= least_tiled_rows(l->kind)));
  const int tiles = (height + TILE_HEIGHT - 1) / TILE_HEIGHT, each = (height + tiles - 1) / tiles;
  const int padded = tiled ? tiles * each : height;
  float sums[2 * (HAS_TILES ? MAX_TILED_ROWS : MAX_ROWS) * PANEL];
  const void *from = x + row * in_stride;
  float *to = y + row * out_stride;
  if (rounds_rows(l->kind)) {
    if (room->first != row) {
      room->rows = rounded_rows(l, from, in_stride, height, padded, rounded);
      room->first = row;
    }
    from = room->rows;
  }
#if HAS_TILES
  if (tiled) {
    const tile_sizes sizes = sizes_of_tiles(each, paired ? TILE_INPUTS / 2 : tile_depth(l->kind));
    TILE_CONFIGURE(sizes);
  }
#endif
  for (int panel = first * unit, count; panel < last * unit; panel += count) {
    count = last * unit - panel < usual ? last * unit - panel : usual;
    memset(sums, 0, sizeof(float) * count * padded * PANEL);
    if (integer)
      sum_integer_panels(l, panel, count, from, height, padded, sums);
    else if (tiled)
      sum_tiled_panels(l, panel, count, from, stride, each, tiles, sums);
    else
      sum_panels(l, panel, count, from, stride, height, sums);
    for (int p = 0; p < count; p += unit) {
      const float *found = sums + (int64_t)p * padded * PANEL;
      if (outcome == GATED_SILU)
        put_gated(GATED_SILU, l, panel + p, found, padded, height, to, out_stride, width);
      else if (outcome == GATED_GELU_TANH)
        put_gated(GATED_GELU_TANH, l, panel + p, found, padded, height, to, out_stride, width);
      else
        put(l, panel + p, found, height, outcome == ADDED, to, out_stride);
    }
  }
#if HAS_TILES
  if (tiled) TILE_RELEASE();
#endif
}

/* The same for all rows, block after block. */
static void apply_panels(const linear *l, int first, int last, const float *x, int64_t in_stride,
                         int rows, float *y, int64_t out_stride, int width, int outcome,
                         room_of_rows *room) {
  const int blocks = row_blocks(l, rows);
  for (int b = 0, row; b < blocks; b++) {
    const int height = block_of_rows(rows, blocks, b, &row);
    apply_block(l, first, last, x, in_stride, row, height, y, out_stride, width, outcome, room);
  }
}

/* The same for all rows and panels, divided among the threads. Where rows are rounded, what a thread
 * claims is consecutive panels of one block of rows, then of the next, so it rounds each block only
 * once. Otherwise it is panels for all rows, so that weights are read once. */
static void apply(const linear *l, team *t, const float *x, int64_t in_stride, int rows, float *y,
                  int64_t out_stride, int width, int outcome) {
  const int unit = unit_of(outcome), units = panels_of(l) / unit;
  const int blocks = rounds_rows(l->kind) ? row_blocks(l, rows) : 1, total = blocks * units;
  int first, last, block = -1, row, height;
  room_of_rows room;
  while (claim(t, total, 4 / unit, total, &first, &last))
    for (int end; first < last; first = end) {
      const int now = first / units, begin = first % units;
      end = first - begin + units < last ? first - begin + units : last;
      if (now != block) {
        room = (room_of_rows){NULL, -1};
        height = block_of_rows(rows, blocks, now, &row);
      }
      block = now;
      apply_panels(l, begin, begin + end - first, x + row * in_stride, in_stride, height,
                   y + row * out_stride, out_stride, width, outcome, &room);
    }
}
