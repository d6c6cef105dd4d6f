/* Attention of a batch's rows to their sequences' keys and values in the paged cache. */
#pragma once
#include <string.h>

#include "model.h"

#define SCORES (32 << 10) /* floats of a chunk's scores at a time, or as many as a tile needs */

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

INLINE float *cached(const model *m, float *cache, int64_t block, int value, int head, int slot) {
  int64_t row = (block * 2 + value) * m->kv_heads + head;
  return cache + (row * m->block_size + slot) * m->head_dim;
}

INLINE const int64_t *table_of(const batch *b, int row) {
  return b->tables + b->sequences[row] * b->table_width;
}

/* Norm and rotate one head of one row; keys and values go to the cache. */
static void place_head(const model *m, const layer *l, const batch *b, int row, int head,
                       float *qkv) {
  int D = m->head_dim, rotated = m->heads + m->kv_heads;
  float *x = qkv + (int64_t)head * D;
  if (head < rotated) {
    if (l->qk_norm) rms_norm(x, l->qk_norm + (int64_t)head * D, x, D, m->eps);
    rotate(x, b->rotations + (int64_t)row * D, D);
  }
  if (head < m->heads) return;
  int64_t position = b->positions[row];
  int64_t block = table_of(b, row)[position / m->block_size];
  int value = head >= rotated, kv_head = head - (value ? rotated : m->heads);
  float *to = cached(m, l->cache, block, value, kv_head, position % m->block_size);
  memcpy(to, x, sizeof(float) * D);
}

/* In place: s[i] = e^(s[i] * scale) / total for first <= i < last, else 0. */
static void softmax(float *s, int first, int last, int size, float scale) {
  const int whole = first + (last - first) / LANES * LANES;
  float most = s[first], rest[LANES] = {0}, all = 0;
  vec high = splat(most), total = {0};
  for (int i = first; i < whole; i += LANES) high = choose(load(s + i) > high, load(s + i), high);
  for (int i = 0; i < LANES; i++) most = high[i] > most ? high[i] : most;
  for (int i = whole; i < last; i++) most = s[i] > most ? s[i] : most;
  for (int i = 0; i < first; i++) s[i] = 0;
  for (int i = last; i < size; i++) s[i] = 0;
  for (int i = first; i < whole; i += LANES) {
    vec e = vector_exp((load(s + i) - most) * scale);
    store(s + i, e);
    total += e;
  }
  for (int i = whole; i < last; i++) rest[i - whole] = (s[i] - most) * scale;
  vec e = vector_exp(load(rest));
  for (int i = whole; i < last; i++) all += s[i] = e[i - whole];
  const float inverse = 1 / (sum(total) + all);
  for (int i = first; i < whole; i += LANES) store(s + i, load(s + i) * inverse);
  for (int i = whole; i < last; i++) s[i] *= inverse;
}

/* Tokens of one block that a row sees: from `slot` on, `count` of them. */
typedef struct {
  int64_t block;
  int slot, count;
} stretch;

INLINE stretch stretch_at(const model *m, const int64_t *table, int token, int end) {
  const int slot = token % m->block_size, room = m->block_size - slot;
  return (stretch){table[token / m->block_size], slot, room < end - token ? room : end - token};
}

/* Ask for a head's block of keys or values while another is computed with: it lies elsewhere in
 * memory, where the machine does not look ahead by itself. One row of it at each call. */
INLINE void fetch_row(const float *rows, int row, int D) {
  for (int d = 0; d < D; d += 16) __builtin_prefetch(rows + (int64_t)row * D + d);
}

/* to[g][i] = q[g] . keys[i], for G heads and up to four keys. */
INLINE void dots(const int G, const float *q, const float *keys, int count, int D, float *to,
                 int stride) {
  /* A key that is not there is the first again; its sum goes nowhere. */
  const float *key[4] = {keys, keys + (count > 1 ? D : 0), keys + (count > 2 ? 2 * D : 0),
                         keys + (count > 3 ? 3 * D : 0)};
  vec dot[2][4] = {{{0}}};
  for (int d = 0; d < D; d += LANES) {
    const vec query[2] = {held(load(q + d)), held(load(q + (G - 1) * D + d))};
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      const vec values = held(load(key[i] + d));
#pragma GCC unroll 2
      for (int g = 0; g < G; g++) dot[g][i] += query[g] * values;
    }
  }
#pragma GCC unroll 2
  for (int g = 0; g < G; g++) {
    float found[4];
    sums_of_four(dot[g], found);
    for (int i = 0; i < count; i++) to[(int64_t)g * stride + i] = found[i];
  }
}

/* to[g] += p[g][i] values[i] over the block, for G heads and `width` vectors of the values. */
INLINE void mix(const int G, const int width, const float *p, int stride, const float *values,
                int count, int D, float *to) {
  vec a[2][4];
#pragma GCC unroll 2
  for (int g = 0; g < G; g++)
#pragma GCC unroll 4
    for (int c = 0; c < width; c++) a[g][c] = load(to + g * D + c * LANES);
  for (int i = 0; i < count; i++)
#pragma GCC unroll 4
    for (int c = 0; c < width; c++) {
      const vec value = held(load(values + (int64_t)i * D + c * LANES));
#pragma GCC unroll 2
      for (int g = 0; g < G; g++) a[g][c] += p[(int64_t)g * stride + i] * value;
    }
#pragma GCC unroll 2
  for (int g = 0; g < G; g++)
#pragma GCC unroll 4
    for (int c = 0; c < width; c++) store(to + g * D + c * LANES, a[g][c]);
}

INLINE void mix_block(const int G, const float *p, int stride, const float *values, int count,
                      int D, float *to) {
  int d = 0;
  for (; d + 4 * LANES <= D; d += 4 * LANES) mix(G, 4, p, stride, values + d, count, D, to + d);
  for (; d < D; d += LANES) mix(G, 1, p, stride, values + d, count, D, to + d);
}

/* One row's query heads of key heads first_head .. last_head: out = softmax(q . keys * scale)
 * values. Heads take turns block by block, so that memory is read in the order it lies in, and
 * each asks for its rows of the next block. */
static void attend(const model *m, const layer *l, const batch *b, int row, int first_head,
                   int last_head, const float *q, float *out, float *scores) {
  const int D = m->head_dim, group = m->heads / m->kv_heads, longest = b->longest;
  const int64_t *table = table_of(b, row), all = (int64_t)(last_head - first_head) * group;
  const int end = (int)b->positions[row] + 1;
  const int start = l->window && end > l->window ? end - l->window : 0;
  stretch now, later;
  for (int t = start; t < end; t += now.count) {
    now = stretch_at(m, table, t, end);
    const int more = t + now.count < end;
    if (more) later = stretch_at(m, table, t + now.count, end);
    for (int head = first_head; head < last_head; head++) {
      const float *keys = cached(m, l->cache, now.block, 0, head, now.slot);
      const float *next = more ? cached(m, l->cache, later.block, 0, head, later.slot) : keys;
      for (int i = 0; i < now.count; i += 4) {
        const int count = now.count - i < 4 ? now.count - i : 4;
        for (int n = i; n < i + count; n++) fetch_row(next, n, D);
        for (int g = 0; g < group; g += 2) {
          const int64_t at = (int64_t)(head - first_head) * group + g;
          float *to = scores + at * longest + (t - start) + i;
          if (group - g > 1)
            dots(2, q + at * D, keys + (int64_t)i * D, count, D, to, longest);
          else
            dots(1, q + at * D, keys + (int64_t)i * D, count, D, to, longest);
        }
      }
    }
  }
  for (int64_t at = 0; at < all; at++)
    softmax(scores + at * longest, 0, end - start, end - start, l->scale);
  memset(out, 0, sizeof(float) * all * D);
  for (int t = start; t < end; t += now.count) {
    now = stretch_at(m, table, t, end);
    const int more = t + now.count < end;
    if (more) later = stretch_at(m, table, t + now.count, end);
    for (int head = first_head; head < last_head; head++) {
      const float *values = cached(m, l->cache, now.block, 1, head, now.slot);
      const float *next = more ? cached(m, l->cache, later.block, 1, head, later.slot) : values;
      for (int i = 0; i < now.count; i++) fetch_row(next, i, D);
      for (int g = 0; g < group; g += 2) {
        const int64_t at = (int64_t)(head - first_head) * group + g;
        const float *p = scores + at * longest + (t - start);
        if (group - g > 1)
          mix_block(2, p, longest, values, now.count, D, out + at * D);
        else
          mix_block(1, p, longest, values, now.count, D, out + at * D);
      }
    }
  }
}

/* The part of the context that a chunk of rows sees, in whole panels. */
typedef struct {
  int low, keys; /* first token, tokens up to a multiple of PANEL */
} view;

static view chunk_view(const layer *l, const batch *b, int row, int rows) {
  int start = (int)b->positions[row] + 1 - l->window;
  int low = l->window && start > 0 ? start / PANEL * PANEL : 0;
  int keys = (int)b->positions[row + rows - 1] + 1 - low;
  return (view){low, (keys + PANEL - 1) / PANEL * PANEL};
}

/* Keys as panels of tokens, values as panels of elements, zeros beyond the last token. */
static void pack_context(const model *m, const layer *l, const batch *b, int row, int end,
                         int kv_head, view v, float *keys, float *values) {
  const int D = m->head_dim, wide = (D + PANEL - 1) / PANEL;
  const int64_t *table = table_of(b, row);
  memset(keys + (int64_t)(v.keys - PANEL) * D, 0, sizeof(float) * PANEL * D);
  for (int c = 0; c < wide; c++)
    memset(values + ((int64_t)(c + 1) * v.keys - PANEL) * PANEL, 0, sizeof(float) * PANEL * PANEL);
  for (int t = v.low; t < end; t++) {
    const int64_t block = table[t / m->block_size];
    const float *key = cached(m, l->cache, block, 0, kv_head, t % m->block_size);
    const float *value = cached(m, l->cache, block, 1, kv_head, t % m->block_size);
    const int place = t - v.low;
    float *to = keys + (int64_t)(place / PANEL) * D * PANEL + place % PANEL;
    for (int d = 0; d < D; d++) to[d * PANEL] = key[d];
    for (int c = 0; c < wide; c++)
      for (int d = c * PANEL; d < D && d < (c + 1) * PANEL; d++)
        values[((int64_t)c * v.keys + place) * PANEL + d - c * PANEL] = value[d];
  }
}

/* Rows whose scores are held at a time. */
static int score_rows(int keys) {
  const int rows = SCORES / keys / TILE_ROWS * TILE_ROWS;
  return rows < TILE_ROWS ? TILE_ROWS : rows > MAX_ROWS ? MAX_ROWS : rows;
}

/* `attend` for adjacent rows of one sequence, whose keys and values are packed once for all. */
static void attend_chunk(const model *m, const layer *l, const batch *b, int row, int rows,
                         int kv_head, const float *qkv, int64_t qkv_width, float *mixed,
                         int64_t mixed_width, float *scratch) {
  const int D = m->head_dim, group = m->heads / m->kv_heads;
  const view v = chunk_view(l, b, row, rows);
  const int end = (int)b->positions[row + rows - 1] + 1, most = score_rows(v.keys);
  float *keys = scratch, *values = keys + (int64_t)v.keys * D;
  float *scores = values + (int64_t)v.keys * ((D + PANEL - 1) / PANEL) * PANEL;
  pack_context(m, l, b, row, end, kv_head, v, keys, values);
  const linear to_scores = {keys, NULL, NULL, D, v.keys, FLOAT32, D};
  linear to_mixed = {values, NULL, NULL, 0, D, FLOAT32, v.keys};
  float sums[MAX_ROWS * PANEL];
  for (int head = kv_head * group; head < (kv_head + 1) * group; head++)
    for (int r = 0; r < rows; r += most) {
      const int count = rows - r < most ? rows - r : most;
      const float *q = qkv + (row + r) * qkv_width + (int64_t)head * D;
      const int seen = (int)b->positions[row + r + count - 1] + 1 - v.low;
      const int panels = (seen + PANEL - 1) / PANEL;
      for (int p = 0; p < panels; p++) {
        sum_panels(&to_scores, p, 1, q, qkv_width, count, sums);
        put(&to_scores, p, sums, count, 0, scores, v.keys);
      }
      for (int i = 0; i < count; i++) {
        const int last = (int)b->positions[row + r + i] + 1;
        const int first = l->window && last > l->window ? last - l->window : 0;
        softmax(scores + (int64_t)i * v.keys, first > v.low ? first - v.low : 0, last - v.low,
                panels * PANEL, l->scale);
      }
      to_mixed.inputs = panels * PANEL;
      for (int p = 0; p * PANEL < D; p++) {
        sum_panels(&to_mixed, p, 1, scores, v.keys, count, sums);
        put(&to_mixed, p, sums, count, 0, mixed + (row + r) * mixed_width + head * D, mixed_width);
      }
    }
}

/* Floats of scratch memory that a thread needs: a row's scores, or a chunk's context and scores. */
static int64_t attention_scratch(const model *m, int longest) {
  int64_t keys = (longest + 2 * PANEL - 1) / PANEL * PANEL;
  int64_t wide = (m->head_dim + PANEL - 1) / PANEL * PANEL;
  int64_t chunk = keys * (m->head_dim + wide + TILE_ROWS) + SCORES;
  int64_t row = (int64_t)m->heads * longest;
  return chunk > row ? chunk : row;
}

/* Rows from `row` on that belong to one sequence. */
static int run_of(const batch *b, int row) {
  int last = row + 1;
  while (last < b->rows && b->sequences[last] == b->sequences[row]) last++;
  return last - row;
}

/* One key head's heads of a sequence's rows: norms, rotation, cache. */
static void place_heads(const model *m, const layer *l, const batch *b, int row, int rows,
                        int kv_head, float *qkv, int64_t qkv_width) {
  const int group = m->heads / m->kv_heads;
  for (int r = row; r < row + rows; r++) {
    for (int g = 0; g < group; g++)
      place_head(m, l, b, r, kv_head * group + g, qkv + r * qkv_width);
    place_head(m, l, b, r, m->heads + kv_head, qkv + r * qkv_width);
    place_head(m, l, b, r, m->heads + m->kv_heads + kv_head, qkv + r * qkv_width);
  }
}

/* All rows' keys and values to the cache, then mixed[i] = what row i (with `kept`: row kept[i])
 * attends to. Key heads have nothing to do with each other: each thread has its share of them,
 * at every sequence another one, so that all have work where heads are few. */
static void attend_all(const model *m, const layer *l, const batch *b, const int64_t *kept,
                       int threads, int thread, float *qkv, int64_t qkv_width, float *mixed,
                       int64_t mixed_width, float *scratch) {
  const int D = m->head_dim, group = m->heads / m->kv_heads;
  for (int row = 0, place = 0, turn = thread, run; row < b->rows; row += run, turn++) {
    run = run_of(b, row);
    const int first = place;
    while (kept && place < b->kept_rows && kept[place] < row + run) place++;
    int first_head, last_head;
    share(m->kv_heads, threads, turn % threads, &first_head, &last_head);
    for (int head = first_head; head < last_head; head++)
      place_heads(m, l, b, row, run, head, qkv, qkv_width);
    if (first_head == last_head) continue;
    if (!kept && run > 3) {
      for (int head = first_head; head < last_head; head++)
        attend_chunk(m, l, b, row, run, head, qkv, qkv_width, mixed, mixed_width, scratch);
      continue;
    }
    const int64_t at = (int64_t)first_head * group * D;
    for (int i = kept ? first : row; i < (kept ? place : row + run); i++) {
      const int r = kept ? (int)kept[i] : i;
      attend(m, l, b, r, first_head, last_head, qkv + r * qkv_width + at,
             mixed + i * mixed_width + at, scratch);
    }
  }
}
