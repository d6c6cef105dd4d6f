/* Attention of a batch's rows to their sequences' keys and values in the paged cache.
 *
 * Single rows are limited by memory: each reads its context once, block by block, for all query
 * heads of a key head (`attend`). A prompt's rows are limited by arithmetic: tiles of queries are
 * multiplied with blocks of keys that were packed for the matrix product, with a running softmax
 * (`attend_tile`; after Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018,
 * and Dao et al., "FlashAttention", 2022).
 */
#pragma once
#include <string.h>

#include "model.h"

#define KEYS 64     /* tokens in a block that a tile of queries is multiplied with */
#define QUERIES 96  /* in a tile, at most */
#define UNIT 16     /* elements; a head's size is a multiple of this */
#define MOST_HEADS 3 /* that use a key while it is in a register */
#define BYTES_AHEAD 16384 /* how far ahead of their use keys and values are prefetched */
#define MIX_WIDTH (4 * LANES) /* elements of a value that `mix` adds at once, in registers */

INLINE void rms_norm(const float *x, const float *weight, float *y, int size, float eps) {
  vec squares = {0};
  for (int i = 0; i < size; i += LANES) squares += load(x + i) * load(x + i);
  float scale = 1 / sqrtf(sum(squares) / size + eps);
  for (int i = 0; i < size; i += LANES) store(y + i, load(x + i) * scale * load(weight + i));
}

INLINE void rotate(float *x, const float *rotation, int head_dim) {
  for (int i = 0; i < head_dim; i += 2) {
    float a = x[i], b = x[i + 1], cosine = rotation[i], sine = rotation[i + 1];
    x[i] = a * cosine - b * sine;
    x[i + 1] = a * sine + b * cosine;
  }
}

/* The size in bytes of a number of elements of a layer's cache, of any kind. */
INLINE int64_t bytes_stored(const int kind, int64_t elements) {
  return elements * (kind == FLOAT32 ? 4 : 2);
}

/* A vector of a head's elements, starting at `element`. A bfloat16 cache stores UNIT elements in
 * such an order that a shift and a mask turn them into floats. */
INLINE vec load_stored(const int kind, const char *from, int64_t element) {
  if (kind == FLOAT32) return load((const float *)from + element);
  if (kind == FLOAT16) return load_float16((const uint16_t *)from + element);
#if LANES == 8
  const ivec both = *(const memory_ivec *)((const uint16_t *)from + element / UNIT * UNIT);
  return (vec)(element % UNIT ? both & (int32_t)0xffff0000 : both << 16);
#else
  return load_bfloat16((const uint16_t *)from + element);
#endif
}

/* A number too large for float16 becomes its largest. */
INLINE void store_unit(const int kind, char *to, const float *from, int64_t element) {
  if (kind == FLOAT32)
    memcpy((float *)to + element, from + element, sizeof(float) * UNIT);
  else if (kind == FLOAT16)
    for (int i = 0; i < UNIT; i += LANES)
      store_float16((uint16_t *)to + element + i, load(from + element + i));
  else
#if LANES == 8
    *(memory_ivec *)((uint16_t *)to + element) = (ivec)(
        to_bfloat16(load(from + element)) | to_bfloat16(load(from + element + LANES)) << 16);
#else
    store_halves((uint16_t *)to + element, to_bfloat16(load(from + element)));
#endif
}

/* Stores one token's key (or value) of a head. */
INLINE char *cached(const model *m, const layer *l, const int kind, int64_t block, int value,
                    int head, int slot) {
  int64_t row = (block * 2 + value) * l->kv_heads + head;
  return (char *)l->cache + bytes_stored(kind, (row * m->block_size + slot) * l->head_dim);
}

INLINE const int64_t *table_of(const batch *b, int row) {
  return b->tables + b->sequences[row] * b->table_width;
}

/* Normalises and rotates one head of one row; stores keys and values in the cache. */
static void place_head(const model *m, const layer *l, const batch *b, int row, int head,
                       float *qkv) {
  int D = l->head_dim, rotated = m->heads + l->kv_heads;
  float *x = qkv + (int64_t)head * D;
  if (head < l->normed_heads) rms_norm(x, l->head_norms + (int64_t)head * D, x, D, m->eps);
  if (head < rotated) {
    if (l->rope >= 0)
      rotate(x, b->rotations + ((int64_t)l->rope * b->rows + row) * m->head_dim, D);
    if (head < m->heads && b->query_factors)
      for (int d = 0; d < D; d++) x[d] *= b->query_factors[row];
  }
  if (head < m->heads) return;
  int64_t position = b->positions[row];
  int64_t block = table_of(b, row)[position / m->block_size];
  int value = head >= rotated, kv_head = head - (value ? rotated : m->heads);
  char *to = cached(m, l, m->cache_kind, block, value, kv_head, position % m->block_size);
  for (int d = 0; d < D; d += UNIT) store_unit(m->cache_kind, to, x, d);
}

/* In place: s[i] = e^(s[i] * scale) / total. */
static void softmax(float *s, int size, float scale) {
  const int whole = size / LANES * LANES;
  float most = s[0], rest[LANES] = {0}, all = 0;
  vec high = splat(most), total = {0};
  for (int i = 0; i < whole; i += LANES) high = choose(load(s + i) > high, load(s + i), high);
  most = largest(high);
  for (int i = whole; i < size; i++) most = s[i] > most ? s[i] : most;
  for (int i = 0; i < whole; i += LANES) {
    vec e = vector_exp((load(s + i) - most) * scale);
    store(s + i, e);
    total += e;
  }
  for (int i = whole; i < size; i++) rest[i - whole] = (s[i] - most) * scale;
  vec e = vector_exp(load(rest));
  for (int i = whole; i < size; i++) all += s[i] = e[i - whole];
  const float inverse = 1 / (sum(total) + all);
  for (int i = 0; i < whole; i += LANES) store(s + i, load(s + i) * inverse);
  for (int i = whole; i < size; i++) s[i] *= inverse;
}

/* The tokens of one block that a row sees: `count` of them, starting at `slot`. */
typedef struct {
  int64_t block;
  int slot, count;
} stretch;

INLINE stretch stretch_at(const model *m, const int64_t *table, int token, int end) {
  const int slot = token % m->block_size, room = m->block_size - slot;
  return (stretch){table[token / m->block_size], slot, room < end - token ? room : end - token};
}

/* Prefetches one row of a head's block of keys or values before it is needed. Blocks are scattered
 * in memory, where hardware does not prefetch. Into the L2 cache: too few loads into the L1 can be
 * pending at once. */
INLINE void fetch_row(const char *rows, int64_t row_bytes, int row) {
  for (int64_t at = 0; at < row_bytes; at += 64)
    __builtin_prefetch(rows + row * row_bytes + at, 0, 2);
}

/* to[g][i] = q[g] . keys[i], for G heads and up to four keys. */
INLINE void dots(const int kind, const int G, const float *q, const char *keys, int count, int D,
                 float *to, int stride) {
  /* A missing key is replaced by the first; its sum is not used. */
  const int64_t key[4] = {0, count > 1 ? D : 0, count > 2 ? 2 * D : 0, count > 3 ? 3 * D : 0};
  vec dot[MOST_HEADS][4] = {{{0}}};
  for (int d = 0; d < D; d += UNIT)
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
      for (int part = 0; part < UNIT; part += LANES) {
        const vec values = held(load_stored(kind, keys, key[i] + d + part));
#pragma GCC unroll 3
        for (int g = 0; g < G; g++) dot[g][i] += load(q + g * D + d + part) * values;
      }
#pragma GCC unroll 3
  for (int g = 0; g < G; g++) {
    float found[4];
    sums_of_four(dot[g], found);
    if (count == 4)
      memcpy(to + (int64_t)g * stride, found, sizeof found);
    else
      for (int i = 0; i < count; i++) to[(int64_t)g * stride + i] = found[i];
  }
}

/* to[g] += p[g][i] values[i] over the block, for G heads and `width` elements of the values,
 * starting at `d`. */
INLINE void mix(const int kind, const int G, const int width, const float *p, int stride,
                const char *values, int d, int count, int D, float *to) {
  vec a[MOST_HEADS][MIX_WIDTH / LANES];
#pragma GCC unroll 3
  for (int g = 0; g < G; g++)
#pragma GCC unroll 4
    for (int c = 0; c < width / LANES; c++) a[g][c] = load(to + g * D + d + c * LANES);
  for (int i = 0; i < count; i++)
#pragma GCC unroll 4
    for (int c = 0; c < width / LANES; c++) {
      const vec value = held(load_stored(kind, values + bytes_stored(kind, (int64_t)i * D + d),
                                         c * LANES));
#pragma GCC unroll 3
      for (int g = 0; g < G; g++) a[g][c] += p[(int64_t)g * stride + i] * value;
    }
#pragma GCC unroll 3
  for (int g = 0; g < G; g++)
#pragma GCC unroll 4
    for (int c = 0; c < width / LANES; c++) store(to + g * D + d + c * LANES, a[g][c]);
}

INLINE void mix_block(const int kind, const int G, const float *p, int stride, const char *values,
                      int count, int D, float *to) {
  int d = 0;
  if (G < 3) /* three heads leave too few registers for as many elements */
    for (; d + MIX_WIDTH <= D; d += MIX_WIDTH)
      mix(kind, G, MIX_WIDTH, p, stride, values, d, count, D, to);
  for (; d < D; d += UNIT) mix(kind, G, UNIT, p, stride, values, d, count, D, to);
}

/* How many of the remaining heads to compute together. */
INLINE int heads_at_once(int left) { return left == 3 || left > 4 ? 3 : left == 1 ? 1 : 2; }

/* The rows to prefetch for a query that sees `blocks` blocks from token `start` on: the head's keys
 * (or values) of block `later` of these; past the last keys, the first values; past the last values,
 * `here`, which is in the cache. */
INLINE const char *rows_ahead(const int kind, const model *m, const layer *l, const int64_t *table,
                              int start, int blocks, int later, int value, int head,
                              const char *here) {
  if (later >= blocks && !value) later -= blocks, value = 1;
  if (later >= blocks) return here;
  const int64_t block = table[start / m->block_size + later];
  return cached(m, l, kind, block, value, head, later ? 0 : start % m->block_size);
}

/* Query heads of one row, of key heads first_head .. last_head: out = softmax(q . keys * scale)
 * values. Processes all heads block by block, so that memory is read in order. */
INLINE void attend_to(const int kind, const model *m, const layer *l, const batch *b, int row,
                      int first_head, int last_head, const float *q, float *out, float *scores) {
  const int D = l->head_dim, group = m->heads / l->kv_heads, longest = b->longest;
  const int64_t *table = table_of(b, row), all = (int64_t)(last_head - first_head) * group;
  const int64_t row_bytes = bytes_stored(kind, D);
  const int end = (int)b->positions[row] + 1;
  const int start = l->window && end > l->window ? end - l->window : 0;
  const int blocks = (end - 1) / m->block_size + 1 - start / m->block_size;
  const int64_t block_bytes = row_bytes * m->block_size * (last_head - first_head);
  const int wanted = (int)((BYTES_AHEAD + block_bytes - 1) / block_bytes);
  /* The first blocks are not prefetched, so they must be few in a short context. */
  const int ahead = wanted < blocks / 4 ? wanted : blocks < 8 ? 1 : blocks / 4;
  stretch now;
  for (int t = start, later = ahead; t < end; t += now.count, later++) {
    now = stretch_at(m, table, t, end);
    for (int head = first_head; head < last_head; head++) {
      const char *keys = cached(m, l, kind, now.block, 0, head, now.slot);
      const char *next = rows_ahead(kind, m, l, table, start, blocks, later, 0, head, keys);
      for (int i = 0; i < now.count; i += 4) {
        const int count = now.count - i < 4 ? now.count - i : 4;
        for (int r = i; r < i + count; r++) fetch_row(next, row_bytes, r);
        for (int g = 0, heads; g < group; g += heads) {
          const int64_t at = (int64_t)(head - first_head) * group + g;
          float *to = scores + at * longest + (t - start) + i;
          heads = heads_at_once(group - g);
          if (heads == 3)
            dots(kind, 3, q + at * D, keys + i * row_bytes, count, D, to, longest);
          else if (heads == 2)
            dots(kind, 2, q + at * D, keys + i * row_bytes, count, D, to, longest);
          else
            dots(kind, 1, q + at * D, keys + i * row_bytes, count, D, to, longest);
        }
      }
    }
  }
  for (int64_t at = 0; at < all; at++) softmax(scores + at * longest, end - start, l->scale);
  memset(out, 0, sizeof(float) * all * D);
  for (int t = start, later = ahead; t < end; t += now.count, later++) {
    now = stretch_at(m, table, t, end);
    for (int head = first_head; head < last_head; head++) {
      const char *values = cached(m, l, kind, now.block, 1, head, now.slot);
      const char *next = rows_ahead(kind, m, l, table, start, blocks, later, 1, head, values);
      for (int i = 0; i < now.count; i++) fetch_row(next, row_bytes, i);
      for (int g = 0, heads; g < group; g += heads) {
        const int64_t at = (int64_t)(head - first_head) * group + g;
        const float *p = scores + at * longest + (t - start);
        heads = heads_at_once(group - g);
        if (heads == 3)
          mix_block(kind, 3, p, longest, values, now.count, D, out + at * D);
        else if (heads == 2)
          mix_block(kind, 2, p, longest, values, now.count, D, out + at * D);
        else
          mix_block(kind, 1, p, longest, values, now.count, D, out + at * D);
      }
    }
  }
}

static void attend(const model *m, const layer *l, const batch *b, int row, int first_head,
                   int last_head, const float *q, float *out, float *scores) {
  if (m->cache_kind == BFLOAT16)
    attend_to(BFLOAT16, m, l, b, row, first_head, last_head, q, out, scores);
  else if (m->cache_kind == FLOAT16)
    attend_to(FLOAT16, m, l, b, row, first_head, last_head, q, out, scores);
  else
    attend_to(FLOAT32, m, l, b, row, first_head, last_head, q, out, scores);
}

/* A thread's scratch memory for `attend_tile`. `wide`: a head's size, in whole panels. */
typedef struct {
  int wide;
  int64_t query_stride, weight_stride;
  float *queries; /* [queries][query_stride] */
  float *keys;    /* [KEYS / PANEL][head_dim][PANEL] */
  float *values;  /* [wide / PANEL][KEYS][PANEL] */
  float *scores;  /* [KEYS / PANEL][queries][PANEL] */
  float *weights; /* [queries][weight_stride] */
  float *mixed;   /* [wide / PANEL][queries][PANEL] */
} tile_scratch;

static int whole_panels(int head_dim) { return (head_dim + PANEL - 1) / PANEL * PANEL; }

static int64_t tile_floats(const model *m) {
  const int64_t D = m->head_dim, wide = whole_panels(m->head_dim);
  return QUERIES * (D + APART + KEYS + KEYS + APART + wide) + KEYS * (D + wide);
}

static tile_scratch tile_scratch_at(int head_dim, float *scratch) {
  tile_scratch s = {.wide = whole_panels(head_dim),
                    .query_stride = head_dim + APART,
                    .weight_stride = KEYS + APART};
  s.queries = scratch;
  s.keys = s.queries + QUERIES * s.query_stride;
  s.values = s.keys + KEYS * head_dim;
  s.scores = s.values + KEYS * s.wide;
  s.weights = s.scores + QUERIES * KEYS;
  s.mixed = s.weights + QUERIES * s.weight_stride;
  return s;
}

/* Prefetches the keys and values of tokens t .. end. */
INLINE void fetch_tokens(const int kind, const model *m, const layer *l, const int64_t *table,
                         int t, int end, int kv_head) {
  const int64_t row_bytes = bytes_stored(kind, l->head_dim);
  const int64_t to_value = row_bytes * l->kv_heads * m->block_size;
  stretch part;
  for (; t < end; t += part.count) {
    part = stretch_at(m, table, t, end);
    const char *from = cached(m, l, kind, part.block, 0, kv_head, part.slot);
    for (int i = 0; i < part.count; i++) {
      fetch_row(from, row_bytes, i);
      fetch_row(from + to_value, row_bytes, i);
    }
  }
}

/* Packs tokens t .. end (at most KEYS): keys as panels of tokens, values as panels of elements.
 * Missing tokens are replaced by the last one: their weight is zero. */
INLINE void pack_block(const int kind, const model *m, const layer *l, const int64_t *table, int t,
                       int end, int kv_head, const tile_scratch *s) {
  const int D = l->head_dim, places = (end - t + PANEL - 1) / PANEL * PANEL;
  const int64_t to_value = bytes_stored(kind, (int64_t)l->kv_heads * m->block_size * D);
  const char *keys[KEYS];
  stretch part;
  for (int at = t, place = 0; place < places; at += part.count) {
    part = stretch_at(m, table, at < end ? at : end - 1, end);
    const char *from = cached(m, l, kind, part.block, 0, kv_head, part.slot);
    for (int i = 0; i < part.count && place < places; i++)
      keys[place++] = from + bytes_stored(kind, (int64_t)i * D);
  }
  for (int place = 0; place < places; place += LANES)
    for (int d = 0; d < D; d += LANES) {
      vec square[LANES];
#pragma GCC unroll 16
      for (int i = 0; i < LANES; i++) square[i] = load_stored(kind, keys[place + i], d);
      transpose(square);
      float *to = s->keys + (int64_t)(place / PANEL * D + d) * PANEL + place % PANEL;
#pragma GCC unroll 16
      for (int i = 0; i < LANES; i++) store(to + i * PANEL, square[i]);
    }
  for (int place = 0; place < places; place++)
    for (int d = 0; d < s->wide; d += LANES)
      store(s->values + (int64_t)(d / PANEL * KEYS + place) * PANEL + d % PANEL,
            d < D ? load_stored(kind, keys[place] + to_value, d) : (vec){0});
}

/* Turns a query's scores of a block into its weights, where first <= token < last; zeros elsewhere.
 * `most` and `total`: the largest score so far and the sum of weights relative to it; the weighted
 * sum so far is rescaled when the largest score changes. */
INLINE void weigh(const tile_scratch *s, int queries, int query, int panels, int first, int last,
                  float *most, float *total) {
  const int places = panels * PANEL, whole = first <= 0 && last >= places;
  float *to = s->weights + query * s->weight_stride;
  if (first >= last) {
    memset(to, 0, sizeof(float) * places);
    return;
  }
  vec score[KEYS / LANES], high = splat(-INFINITY), all = {0};
  ivec seen[KEYS / LANES], place = {EACH_LANE(LANE_NUMBER, 0)};
  for (int i = 0; i < places / LANES; i++, place += LANES) {
    const int panel = i * LANES / PANEL;
    score[i] = load(s->scores + ((int64_t)panel * queries + query) * PANEL + i * LANES % PANEL);
    seen[i] = (place >= first) & (place < last);
    if (!whole) score[i] = choose(seen[i], score[i], splat(-INFINITY));
    high = choose(score[i] > high, score[i], high);
  }
  const float before = *most, now = largest(high);
  if (now > before) {
    const float scale = before == -INFINITY ? 0 : vector_exp(splat(before - now))[0];
    for (int d = 0; d < s->wide; d += LANES) {
      float *mixed = s->mixed + ((int64_t)(d / PANEL) * queries + query) * PANEL + d % PANEL;
      store(mixed, load(mixed) * scale);
    }
    *total *= scale;
    *most = now;
  }
  for (int i = 0; i < places / LANES; i++) {
    vec weight = vector_exp(score[i] - *most);
    if (!whole) weight = choose(seen[i], weight, (vec){0});
    store(to + i * LANES, weight);
    all += weight;
  }
  *total += sum(all);
}

/* The `heads` query heads of a key head, starting at `head`, for adjacent rows of one sequence, at
 * most QUERIES in all. `mixed`: the result of the first row. A block of keys begins at a multiple of
 * KEYS, and a block that a row does not see does not change it: a row's results do not depend on the
 * other rows. */
INLINE void attend_tile(const int kind, const model *m, const layer *l, const batch *b, int row,
                        int rows, int head, int heads, const float *qkv, int64_t qkv_width,
                        float *mixed, int64_t mixed_width, float *scratch) {
  float most[QUERIES], total[QUERIES];
  const tile_scratch s = tile_scratch_at(l->head_dim, scratch);
  const int D = l->head_dim, queries = rows * heads, kv_head = head / (m->heads / l->kv_heads);
  const int64_t *table = table_of(b, row), *positions = b->positions + row;
  for (int q = 0; q < queries; q++) {
    const float *from = qkv + (row + q / heads) * qkv_width + (int64_t)(head + q % heads) * D;
    for (int d = 0; d < D; d += LANES)
      store(s.queries + q * s.query_stride + d, load(from + d) * l->scale);
    most[q] = -INFINITY;
    total[q] = 0;
  }
  memset(s.mixed, 0, sizeof(float) * queries * s.wide);
  const linear to_scores = {s.keys, NULL, D, KEYS, FLOAT32, D};
  linear to_mixed = {s.values, NULL, KEYS, D, FLOAT32, KEYS};
  const int end = (int)positions[rows - 1] + 1, low = (int)positions[0] + 1 - l->window;
  for (int t = l->window && low > 0 ? low / KEYS * KEYS : 0; t < end; t += KEYS) {
    const int block_end = end - t < KEYS ? end : t + KEYS;
    const int panels = (block_end - t + PANEL - 1) / PANEL;
    pack_block(kind, m, l, table, t, block_end, kv_head, &s);
    fetch_tokens(kind, m, l, table, block_end, end - block_end < KEYS ? end : block_end + KEYS,
                 kv_head);
    memset(s.scores, 0, sizeof(float) * panels * queries * PANEL);
    sum_panels(&to_scores, 0, panels, s.queries, s.query_stride, queries, s.scores);
    for (int q = 0; q < queries; q++) {
      const int seen = (int)positions[q / heads] + 1, from = l->window ? seen - l->window : 0;
      weigh(&s, queries, q, panels, from - t, seen - t, &most[q], &total[q]);
    }
    to_mixed.inputs = panels * PANEL;
    sum_panels(&to_mixed, 0, s.wide / PANEL, s.weights, s.weight_stride, queries, s.mixed);
  }
  for (int q = 0; q < queries; q++) {
    float *to = mixed + q / heads * mixed_width + (int64_t)(head + q % heads) * D;
    for (int d = 0; d < D; d += LANES)
      store(to + d, load(s.mixed + ((int64_t)(d / PANEL) * queries + q) * PANEL + d % PANEL) /
                        total[q]);
  }
}

/* `attend` for adjacent rows of one sequence and one key head's query heads. `mixed`: the result of
 * the first row. */
static void attend_chunk(const model *m, const layer *l, const batch *b, int row, int rows,
                         int kv_head, const float *qkv, int64_t qkv_width, float *mixed,
                         int64_t mixed_width, float *scratch) {
  const int group = m->heads / l->kv_heads, heads = group < QUERIES ? group : QUERIES;
  const int most = QUERIES / heads;
  for (int g = 0; g < group; g += heads)
    for (int r = 0; r < rows; r += most) {
      const int head = kv_head * group + g, width = group - g < heads ? group - g : heads;
      const int height = rows - r < most ? rows - r : most;
      float *to = mixed + r * mixed_width;
      if (m->cache_kind == BFLOAT16)
        attend_tile(BFLOAT16, m, l, b, row + r, height, head, width, qkv, qkv_width, to,
                    mixed_width, scratch);
      else if (m->cache_kind == FLOAT16)
        attend_tile(FLOAT16, m, l, b, row + r, height, head, width, qkv, qkv_width, to,
                    mixed_width, scratch);
      else
        attend_tile(FLOAT32, m, l, b, row + r, height, head, width, qkv, qkv_width, to,
                    mixed_width, scratch);
    }
}

/* The floats of scratch memory that a thread needs, in whole cache lines: for a tile or for a row's
 * scores. */
static int64_t attention_scratch(const model *m, int longest) {
  const int64_t tile = tile_floats(m), row = (int64_t)m->heads * longest;
  return ((tile > row ? tile : row) + 15) / 16 * 16;
}

/* Counts the rows, starting at `row`, that belong to one sequence. */
static int run_of(const batch *b, int row) {
  int last = row + 1;
  while (last < b->rows && b->sequences[last] == b->sequences[row]) last++;
  return last - row;
}

/* How many sequences there are, and how many key heads a thread claims at once, at most. With many,
 * memory is read in longer stretches. If one sequence has much of the work, a thread claims only a
 * few, so that threads finish together. */
typedef struct {
  int sequences, most;
} division;

static division divide(const batch *b, const layer *l, int threads) {
  int64_t total = 0, largest = 1;
  division d = {0, l->kv_heads};
  for (int row = 0, run; row < b->rows; row += run, d.sequences++) {
    run = run_of(b, row);
    int64_t seen = b->positions[row + run - 1] + 1;
    if (l->window && seen > l->window + run) seen = l->window + run;
    total += run * seen;
    largest = run * seen > largest ? run * seen : largest;
  }
  const int64_t most = l->kv_heads * total / (2 * threads * largest);
  if (threads == 1)
    d.most = d.sequences * l->kv_heads;
  else if (most < l->kv_heads)
    d.most = most ? (int)most : 1;
  return d;
}

/* One key head's heads of a sequence's rows: normalises, rotates, stores keys and values. */
static void place_heads(const model *m, const layer *l, const batch *b, int row, int rows,
                        int kv_head, float *qkv, int64_t qkv_width) {
  const int group = m->heads / l->kv_heads;
  for (int r = row; r < row + rows; r++) {
    for (int g = 0; g < group; g++)
      place_head(m, l, b, r, kv_head * group + g, qkv + r * qkv_width);
    if (!l->has_keys) continue;
    place_head(m, l, b, r, m->heads + kv_head, qkv + r * qkv_width);
    place_head(m, l, b, r, m->heads + l->kv_heads + kv_head, qkv + r * qkv_width);
  }
}

/* Stores all rows' keys and values, then computes mixed[i], the attention of row i (with `kept`: of
 * row kept[i]). Key heads are independent of each other: a thread claims some of a sequence's at a
 * time. `attend` and `attend_chunk` round differently, so a deterministic model uses the latter for
 * single rows too. */
static void attend_all(const model *m, const layer *l, const batch *b, const int64_t *kept,
                       team *t, float *qkv, int64_t qkv_width, float *mixed, int64_t mixed_width,
                       float *scratch) {
  const int D = l->head_dim, group = m->heads / l->kv_heads, kv_heads = l->kv_heads;
  const division d = divide(b, l, t->count);
  int row = 0, run = run_of(b, 0), place = 0, number = 0, claimed, end;
  while (claim(t, d.sequences * kv_heads, 1, d.most, &claimed, &end))
    for (int next; claimed < end; claimed = next) {
      for (; number < claimed / kv_heads; number++) {
        row += run;
        run = run_of(b, row);
      }
      while (kept && place < b->kept_rows && kept[place] < row) place++;
      next = (number + 1) * kv_heads < end ? (number + 1) * kv_heads : end;
      const int first_head = claimed % kv_heads, last_head = first_head + next - claimed;
      for (int head = first_head; head < last_head; head++)
        place_heads(m, l, b, row, run, head, qkv, qkv_width);
      if (!kept && (run > 3 || m->deterministic)) {
        for (int head = first_head; head < last_head; head++)
          attend_chunk(m, l, b, row, run, head, qkv, qkv_width, mixed + row * mixed_width,
                       mixed_width, scratch);
        continue;
      }
      const int64_t at = (int64_t)first_head * group * D;
      for (int i = kept ? place : row; i < (kept ? b->kept_rows : row + run); i++) {
        const int r = kept ? (int)kept[i] : i;
        if (r >= row + run) break;
        if (m->deterministic) {
          for (int head = first_head; head < last_head; head++)
            attend_chunk(m, l, b, r, 1, head, qkv, qkv_width, mixed + i * mixed_width, mixed_width,
                         scratch);
          continue;
        }
        attend(m, l, b, r, first_head, last_head, qkv + r * qkv_width + at,
               mixed + i * mixed_width + at, scratch);
      }
    }
}
