/* One forward pass of a Llama-like decoder over a batch of rows, in one call.
 *
 * A row is one token of one sequence. All arithmetic is float32; weights are float32 or bfloat16
 * (the latter widened as they are read, which is exact). Every row attends through its block table
 * to the keys and values of its sequence up to itself, so decode rows and prompt chunks mix freely.
 *
 * Weights are packed in panels of PANEL outputs: [panels][inputs][PANEL]. A tile of a few rows and
 * panels lives in registers while the inputs stream by (after Goto and van de Geijn, "Anatomy of
 * High-Performance Matrix Multiplication", 2008).
 *
 * Threads run the same code side by side; `barrier` separates phases that read each other's work.
 * Compiled by engine/cpu/library.py, which also mirrors the structs below.
 */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#else
#define LANES 8
#endif
#define PANEL (2 * LANES)
#define CHUNK_ROWS 6 /* as many as the largest tile */
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
/* As they lie in memory, at any address. */
typedef float memory_vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t memory_ivec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

typedef struct {
  const void *weight;  /* packed */
  const float *bias;   /* [outputs], or NULL */
  int32_t inputs, outputs;
  int32_t bfloat16;
  int32_t panel_inputs; /* inputs that a panel has room for */
} linear;

typedef struct {
  linear qkv, output, gate_up, down; /* gate_up: panels of gate and up take turns */
  const float *input_norm, *post_norm; /* [hidden] */
  const float *qk_norm; /* [heads + kv_heads][head_dim], or NULL */
  float *cache;         /* [blocks][2][kv_heads][block_size][head_dim] */
  int32_t window;       /* tokens seen at most; 0: all */
  float scale;
} layer;

typedef struct {
  const layer *layers;
  linear head;
  const float *norm;
  int32_t num_layers, hidden, heads, kv_heads, head_dim, inner, block_size;
  float eps;
} model;

typedef struct {
  int32_t rows, kept_rows, table_width, longest;
  float *x;                  /* [rows][hidden], embeddings in, overwritten */
  const float *rotations;    /* [rows][head_dim], cosine and sine of each pair in turn */
  const int64_t *positions;  /* [rows] */
  const int64_t *sequences;  /* [rows], which table is the row's */
  const int64_t *tables;     /* [sequences][table_width], block numbers */
  const int64_t *kept;       /* [kept_rows], rows whose final states are wanted, rising */
  float *out;                /* [kept_rows][hidden], final states, normalised */
  float *scratch;            /* quire_scratch() floats */
} batch;

/* --- threads ------------------------------------------------------------------------------- */

typedef struct {
  const linear *l; /* NULL: a whole pass */
  const float *x;
  float *y;
  int rows;
} map;

typedef struct {
  int count;
  const model *m;
  const batch *b;
  map one;
  atomic_int arrived, sense;
} team;

static void barrier(team *t, int *sense) {
  if (t->count == 1) return;
  *sense = !*sense;
  if (atomic_fetch_add(&t->arrived, 1) == t->count - 1) {
    atomic_store(&t->arrived, 0);
    atomic_store(&t->sense, *sense);
    return;
  }
  /* Others may have been put off their core: spin a little, then let go of ours. */
  for (int spins = 0; atomic_load(&t->sense) != *sense; spins++) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    if (spins > 4000) sched_yield();
  }
}

INLINE void share(int total, int parts, int part, int *first, int *last) {
  *first = (int)((int64_t)total * part / parts);
  *last = (int)((int64_t)total * (part + 1) / parts);
}

/* --- vectors ------------------------------------------------------------------------------- */

INLINE vec load(const float *p) { return *(const memory_vec *)p; }
INLINE void store(float *p, vec v) { *(memory_vec *)p = v; }
INLINE vec splat(float x) { return x - (vec){0}; }

INLINE float sum(vec v) {
#if LANES == 16
  v += __builtin_shuffle(v, (ivec){8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7});
  v += __builtin_shuffle(v, (ivec){4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11});
  v += __builtin_shuffle(v, (ivec){2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13});
  v += __builtin_shuffle(v, (ivec){1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14});
#else
  v += __builtin_shuffle(v, (ivec){4, 5, 6, 7, 0, 1, 2, 3});
  v += __builtin_shuffle(v, (ivec){2, 3, 0, 1, 6, 7, 4, 5});
  v += __builtin_shuffle(v, (ivec){1, 0, 3, 2, 5, 4, 7, 6});
#endif
  return v[0];
}

INLINE vec choose(ivec mask, vec yes, vec no) {
  return (vec)(((ivec)yes & mask) | ((ivec)no & ~mask));
}

/* e^x to about one unit in the last place (Cephes' expf). */
INLINE vec vector_exp(vec x) {
  const vec low = splat(-87.33654f), high = splat(88.0f);
  x = choose(x < low, low, x);
  x = choose(x > high, high, x);
  const vec magic = splat(12582912.0f);
  vec n = x * 1.44269504088896341f + magic;
  n = n - magic;
  vec r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  vec p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  ivec bits = (__builtin_convertvector(n, ivec) + 127) << 23;
  return p * (vec)bits;
}

/* --- linear maps --------------------------------------------------------------------------- */

/* R rows by P panels: sums[r][p] = x[r] . weights of panel p. */
INLINE void tile(const int R, const int P, const int half, const float *x, int64_t stride,
                 const char *w, int64_t panel_bytes, int inputs, vec sums[6][4][2]) {
  vec acc[6][4][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) acc[r][p][0] = acc[r][p][1] = (vec){0};
  for (int k = 0; k < inputs; k++)
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) {
      vec low, high;
      if (half) {
        /* Outputs i and i + LANES share 32 bits: a shift and a mask widen both. */
        ivec both = *(const memory_ivec *)(w + p * panel_bytes + (int64_t)k * PANEL * 2);
        low = (vec)(both << 16);
        high = (vec)(both & (int32_t)0xffff0000);
      } else {
        const float *row = (const float *)(w + p * panel_bytes) + (int64_t)k * PANEL;
        low = load(row);
        high = load(row + LANES);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; r++) {
        vec value = splat(x[r * stride + k]);
        acc[r][p][0] += value * low;
        acc[r][p][1] += value * high;
      }
    }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) {
      sums[r][p][0] = acc[r][p][0];
      sums[r][p][1] = acc[r][p][1];
    }
}

/* Write one tile's sums, plus bias, to y; or add them to what is there. */
INLINE void put(const int R, const int P, vec sums[6][4][2], const linear *l, int panel, int add,
                float *y, int64_t stride) {
  for (int r = 0; r < R; r++)
    for (int p = 0; p < P; p++) {
      int first = (panel + p) * PANEL, width = l->outputs - first;
      float *to = y + r * stride + first;
      if (width >= PANEL) {
        vec a = sums[r][p][0], b = sums[r][p][1];
        if (l->bias) a += load(l->bias + first), b += load(l->bias + first + LANES);
        if (add) a += load(to), b += load(to + LANES);
        store(to, a);
        store(to + LANES, b);
        continue;
      }
      float values[PANEL];
      store(values, sums[r][p][0]);
      store(values + LANES, sums[r][p][1]);
      for (int i = 0; i < width; i++)
        to[i] = values[i] + (l->bias ? l->bias[first + i] : 0) + (add ? to[i] : 0);
    }
}

#define TILE(R, P)                                                                      \
  {                                                                                     \
    vec sums[6][4][2];                                                                  \
    if (l->bfloat16)                                                                    \
      tile(R, P, 1, x + r * in_stride, in_stride, w, panel_bytes, l->inputs, sums);     \
    else                                                                                \
      tile(R, P, 0, x + r * in_stride, in_stride, w, panel_bytes, l->inputs, sums);     \
    put(R, P, sums, l, panel, add, y + r * out_stride, out_stride);                     \
    r += R;                                                                             \
    break;                                                                              \
  }

static void panels_4(const linear *l, int panel, const float *x, int64_t in_stride, int rows,
                     float *y, int64_t out_stride, int add) {
  int64_t panel_bytes = (int64_t)l->panel_inputs * PANEL * (l->bfloat16 ? 2 : 4);
  const char *w = (const char *)l->weight + panel * panel_bytes;
  for (int r = 0; r < rows;) switch (rows - r) { default: TILE(1, 4) }
}

static void panels_2(const linear *l, int panel, const float *x, int64_t in_stride, int rows,
                     float *y, int64_t out_stride, int add) {
  int64_t panel_bytes = (int64_t)l->panel_inputs * PANEL * (l->bfloat16 ? 2 : 4);
  const char *w = (const char *)l->weight + panel * panel_bytes;
  for (int r = 0; r < rows;) switch (rows - r) {
      case 1: TILE(1, 2)
      case 2: TILE(2, 2)
      default: TILE(3, 2)
    }
}

static void panels_1(const linear *l, int panel, const float *x, int64_t in_stride, int rows,
                     float *y, int64_t out_stride, int add) {
  int64_t panel_bytes = (int64_t)l->panel_inputs * PANEL * (l->bfloat16 ? 2 : 4);
  const char *w = (const char *)l->weight + panel * panel_bytes;
  for (int r = 0; r < rows;) switch (rows - r) {
      case 1: TILE(1, 1)
      case 2: TILE(2, 1)
      case 3: TILE(3, 1)
      case 4: case 8: TILE(4, 1)
      case 5: case 10: TILE(5, 1)
      default: TILE(6, 1)
    }
}

/* y[r] = x[r] W^T + bias, or y[r] += that, for this thread's share of the panels. */
static void apply(const linear *l, int threads, int thread, const float *x, int64_t in_stride,
                  int rows, float *y, int64_t out_stride, int add) {
  int first, last, panels = (l->outputs + PANEL - 1) / PANEL;
  share(panels, threads, thread, &first, &last);
  int panel = first;
  if (rows == 1)
    for (; panel + 4 <= last; panel += 4) panels_4(l, panel, x, in_stride, rows, y, out_stride, add);
  if (rows <= 3)
    for (; panel + 2 <= last; panel += 2) panels_2(l, panel, x, in_stride, rows, y, out_stride, add);
  for (; panel < last; panel++) panels_1(l, panel, x, in_stride, rows, y, out_stride, add);
}

/* --- normalisation, rotation, attention ---------------------------------------------------- */

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

/* One key head's query heads of one row: out[g] = softmax(q[g] . keys * scale) values. */
static void attend(const model *m, const layer *l, const batch *b, int row, int kv_head,
                   const float *q, float *out, float *scores) {
  const int D = m->head_dim, group = m->heads / m->kv_heads, size = m->block_size;
  const int64_t *table = table_of(b, row);
  const int end = (int)b->positions[row] + 1;
  const int start = l->window && end > l->window ? end - l->window : 0;
  const int count = end - start, stride = b->longest + LANES;
  for (int t = start; t < end;) {
    int slot = t % size, run = size - slot < end - t ? size - slot : end - t;
    const float *keys = cached(m, l->cache, table[t / size], 0, kv_head, slot);
    for (int g = 0; g < group; g++) {
      const float *query = q + g * D;
      float *to = scores + g * stride + (t - start);
      for (int i = 0; i < run; i++) {
        vec dot = {0};
        const float *key = keys + (int64_t)i * D;
        for (int d = 0; d < D; d += LANES) dot += load(query + d) * load(key + d);
        to[i] = sum(dot) * l->scale;
      }
    }
    t += run;
  }
  for (int g = 0; g < group; g++) {
    float *s = scores + g * stride, most = s[0];
    for (int i = 1; i < count; i++) most = s[i] > most ? s[i] : most;
    for (int i = count; i < count + LANES; i++) s[i] = -INFINITY;
    vec total = {0};
    for (int i = 0; i < count; i += LANES) {
      vec e = vector_exp(load(s + i) - most);
      if (i + LANES > count)
        for (int j = count - i; j < LANES; j++) e[j] = 0;
      store(s + i, e);
      total += e;
    }
    float inverse = 1 / sum(total);
    for (int d = 0; d < D; d += 4 * LANES) {
      int width = D - d < 4 * LANES ? (D - d) / LANES : 4;
      vec a[4] = {{0}};
      for (int t = start; t < end;) {
        int slot = t % size, run = size - slot < end - t ? size - slot : end - t;
        const float *values = cached(m, l->cache, table[t / size], 1, kv_head, slot) + d;
        const float *p = s + (t - start);
        if (width == 4)
          for (int i = 0; i < run; i++) {
            const float *value = values + (int64_t)i * D;
            a[0] += p[i] * load(value);
            a[1] += p[i] * load(value + LANES);
            a[2] += p[i] * load(value + 2 * LANES);
            a[3] += p[i] * load(value + 3 * LANES);
          }
        else
          for (int i = 0; i < run; i++)
            for (int c = 0; c < width; c++) a[c] += p[i] * load(values + (int64_t)i * D + c * LANES);
        t += run;
      }
      for (int c = 0; c < width; c++) store(out + g * D + d + c * LANES, a[c] * inverse);
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

/* In place: s[i] = e^(s[i] * scale) / total for first <= i < last, else 0. */
static void softmax(float *s, int first, int last, int size, float scale) {
  float most = s[first];
  for (int i = first; i < last; i++) most = s[i] > most ? s[i] : most;
  for (int i = 0; i < first; i++) s[i] = 0;
  for (int i = last; i < size; i++) s[i] = 0;
  vec total = {0};
  const int whole = first + (last - first) / LANES * LANES;
  for (int i = first; i < whole; i += LANES) {
    vec e = vector_exp((load(s + i) - most) * scale);
    store(s + i, e);
    total += e;
  }
  float rest[LANES] = {0}, all = 0;
  for (int i = whole; i < last; i++) rest[i - whole] = (s[i] - most) * scale;
  vec e = vector_exp(load(rest));
  for (int i = whole; i < last; i++) all += s[i] = e[i - whole];
  const float inverse = 1 / (sum(total) + all);
  for (int i = first; i < last; i++) s[i] *= inverse;
}

/* `attend` for adjacent rows of one sequence, whose keys and values are packed once for all. */
static void attend_chunk(const model *m, const layer *l, const batch *b, int row, int rows,
                         int kv_head, const float *qkv, int64_t qkv_width, float *mixed,
                         int64_t q_width, float *scratch) {
  const int D = m->head_dim, group = m->heads / m->kv_heads;
  const view v = chunk_view(l, b, row, rows);
  const int end = (int)b->positions[row + rows - 1] + 1;
  float *keys = scratch, *values = keys + (int64_t)v.keys * D;
  float *scores = values + (int64_t)v.keys * ((D + PANEL - 1) / PANEL) * PANEL;
  pack_context(m, l, b, row, end, kv_head, v, keys, values);
  const linear to_scores = {keys, NULL, D, v.keys, 0, D};
  linear to_mixed = {values, NULL, 0, D, 0, v.keys};
  for (int head = kv_head * group; head < (kv_head + 1) * group; head++)
    for (int r = 0; r < rows; r += CHUNK_ROWS) {
      const int count = rows - r < CHUNK_ROWS ? rows - r : CHUNK_ROWS;
      const float *q = qkv + (row + r) * qkv_width + (int64_t)head * D;
      const int seen = (int)b->positions[row + r + count - 1] + 1 - v.low;
      const int panels = (seen + PANEL - 1) / PANEL;
      for (int p = 0; p < panels; p++)
        panels_1(&to_scores, p, q, qkv_width, count, scores, v.keys, 0);
      for (int i = 0; i < count; i++) {
        const int last = (int)b->positions[row + r + i] + 1;
        const int first = l->window && last > l->window ? last - l->window : 0;
        softmax(scores + (int64_t)i * v.keys, first > v.low ? first - v.low : 0, last - v.low,
                panels * PANEL, l->scale);
      }
      to_mixed.inputs = panels * PANEL;
      for (int p = 0; p * PANEL < D; p++)
        panels_1(&to_mixed, p, scores, v.keys, count, mixed + (row + r) * q_width + head * D,
                 q_width, 0);
    }
}

/* gate_up holds panels of gate and up in turn: y = silu(gate) * up. */
static void gate(const model *m, int threads, int thread, const float *gate_up, int64_t stride,
                 int rows, float *y) {
  int first, last, panels = (m->inner + PANEL - 1) / PANEL;
  share(panels, threads, thread, &first, &last);
  for (int r = 0; r < rows; r++)
    for (int panel = first; panel < last; panel++)
      for (int half = 0; half < PANEL; half += LANES) {
        int column = panel * PANEL + half;
        if (column >= m->inner) break;
        const float *from = gate_up + r * stride + 2 * panel * PANEL + half;
        vec g = load(from), up = load(from + PANEL);
        store(y + (int64_t)r * m->inner + column, g / (1 + vector_exp(-g)) * up);
      }
}

/* --- the step ------------------------------------------------------------------------------ */

static int64_t gate_up_width(const model *m) {
  return 2 * (int64_t)((m->inner + PANEL - 1) / PANEL) * PANEL;
}

/* Scratch of one thread for attention: the scores of a row's heads, or a chunk's context. */
static int64_t attention_size(const model *m, int longest) {
  int64_t keys = (longest + 2 * PANEL - 1) / PANEL * PANEL;
  int64_t wide = (m->head_dim + PANEL - 1) / PANEL * PANEL;
  int64_t chunk = keys * (m->head_dim + wide + CHUNK_ROWS);
  int64_t row = (int64_t)(m->heads / m->kv_heads) * (longest + LANES);
  return chunk > row ? chunk : row;
}

/* Rows from `row` on that belong to one sequence. */
static int run_of(const batch *b, int row) {
  int last = row + 1;
  while (last < b->rows && b->sequences[last] == b->sequences[row]) last++;
  return last - row;
}

/* Every row attends; sequences and key heads are dealt out to the threads in turn. */
static void attend_all(const model *m, const layer *l, const batch *b, int threads, int thread,
                       const float *qkv, int64_t qkv_width, float *mixed, int64_t q_width,
                       float *scratch) {
  const int D = m->head_dim, group = m->heads / m->kv_heads;
  for (int row = 0, unit = 0, run; row < b->rows; row += run) {
    run = run_of(b, row);
    for (int head = 0; head < m->kv_heads; head++, unit++) {
      if (unit % threads != thread) continue;
      if (run > 2)
        attend_chunk(m, l, b, row, run, head, qkv, qkv_width, mixed, q_width, scratch);
      else
        for (int r = row; r < row + run; r++)
          attend(m, l, b, r, head, qkv + r * qkv_width + (int64_t)head * group * D,
                 mixed + r * q_width + (int64_t)head * group * D, scratch);
    }
  }
}

static void forward(team *t, int thread) {
  const map *one = &t->one;
  if (one->l) {
    apply(one->l, t->count, thread, one->x, one->l->inputs, one->rows, one->y, one->l->outputs, 0);
    return;
  }
  const model *m = t->m;
  const batch *b = t->b;
  const int threads = t->count, D = m->head_dim, all_heads = m->heads + 2 * m->kv_heads;
  const int group = m->heads / m->kv_heads;
  const int64_t qkv_width = (int64_t)all_heads * D, q_width = (int64_t)m->heads * D;
  const int64_t wide = gate_up_width(m);
  float *normed = b->scratch, *qkv = normed + (int64_t)b->rows * m->hidden;
  float *mixed = qkv + b->rows * qkv_width, *gate_up = mixed + b->rows * q_width;
  float *inner = gate_up + b->rows * wide;
  float *scores = inner + (int64_t)b->rows * m->inner + thread * attention_size(m, b->longest);
  float *x = b->x;
  int rows = b->rows, sense = 0, first, last;

  for (int n = 0; n < m->num_layers; n++) {
    const layer *l = &m->layers[n];
    const int final = n == m->num_layers - 1;
    share(rows, threads, thread, &first, &last);
    for (int r = first; r < last; r++)
      rms_norm(x + (int64_t)r * m->hidden, l->input_norm, normed + (int64_t)r * m->hidden,
               m->hidden, m->eps);
    barrier(t, &sense);
    apply(&l->qkv, threads, thread, normed, m->hidden, rows, qkv, qkv_width, 0);
    barrier(t, &sense);
    share(rows * all_heads, threads, thread, &first, &last);
    for (int i = first; i < last; i++)
      place_head(m, l, b, i / all_heads, i % all_heads, qkv + i / all_heads * qkv_width);
    barrier(t, &sense);
    /* After the last layer's keys and values are stored, only the kept rows matter. */
    const int active = final ? b->kept_rows : rows;
    if (active == rows)
      attend_all(m, l, b, threads, thread, qkv, qkv_width, mixed, q_width, scores);
    else
      for (int i = thread; i < active * m->kv_heads; i += threads) {
        const int place = i / m->kv_heads, row = (int)b->kept[place];
        const int64_t head = (int64_t)(i % m->kv_heads) * group * D;
        attend(m, l, b, row, i % m->kv_heads, qkv + row * qkv_width + head,
               mixed + place * q_width + head, scores);
      }
    if (active < rows && thread == 0) /* rising, so none is overwritten before it was moved */
      for (int place = 0; place < active; place++)
        memmove(x + (int64_t)place * m->hidden, x + b->kept[place] * m->hidden,
                sizeof(float) * m->hidden);
    rows = active;
    barrier(t, &sense);
    apply(&l->output, threads, thread, mixed, q_width, rows, x, m->hidden, 1);
    barrier(t, &sense);
    share(rows, threads, thread, &first, &last);
    for (int r = first; r < last; r++)
      rms_norm(x + (int64_t)r * m->hidden, l->post_norm, normed + (int64_t)r * m->hidden,
               m->hidden, m->eps);
    barrier(t, &sense);
    apply(&l->gate_up, threads, thread, normed, m->hidden, rows, gate_up, wide, 0);
    barrier(t, &sense);
    gate(m, threads, thread, gate_up, wide, rows, inner);
    barrier(t, &sense);
    apply(&l->down, threads, thread, inner, m->inner, rows, x, m->hidden, 1);
    barrier(t, &sense);
  }
  share(rows, threads, thread, &first, &last);
  for (int r = first; r < last; r++)
    rms_norm(x + (int64_t)r * m->hidden, m->norm, b->out + (int64_t)r * m->hidden, m->hidden,
             m->eps);
}

/* --- entry points -------------------------------------------------------------------------- */

typedef struct {
  team t;
  pthread_t threads[256];
  pthread_mutex_t lock;
  pthread_cond_t begin;
  atomic_int round, finished;
} pool;

typedef struct {
  pool *p;
  int thread;
} seat;

static void *work(void *argument) {
  seat *s = argument;
  pool *p = s->p;
  int thread = s->thread, seen = 0;
  free(s);
  for (;;) {
    /* The next step mostly follows at once; only then is it worth waiting awake. */
    for (int spins = 0; spins < 20000 && atomic_load(&p->round) == seen; spins++)
#if defined(__x86_64__)
      __builtin_ia32_pause();
#else
      ;
#endif
    if (atomic_load(&p->round) == seen) {
      pthread_mutex_lock(&p->lock);
      while (atomic_load(&p->round) == seen) pthread_cond_wait(&p->begin, &p->lock);
      pthread_mutex_unlock(&p->lock);
    }
    seen = atomic_load(&p->round);
    forward(&p->t, thread);
    atomic_fetch_add(&p->finished, 1);
  }
  return NULL;
}

int quire_panel(void) { return PANEL; }
int quire_lanes(void) { return LANES; }

/* A pool that lives as long as the process. NULL when its threads cannot be started. */
void *quire_pool(int threads) {
  if (threads < 1 || threads > 256) return NULL;
  pool *p = calloc(1, sizeof(pool));
  if (!p) return NULL;
  p->t.count = threads;
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->begin, NULL);
  for (int i = 1; i < threads; i++) {
    seat *s = malloc(sizeof(seat));
    if (!s) return NULL;
    s->p = p;
    s->thread = i;
    if (pthread_create(&p->threads[i], NULL, work, s)) return NULL;
  }
  return p;
}

/* Floats of scratch memory that a batch needs. */
int64_t quire_scratch(const model *m, int rows, int longest, int threads) {
  int64_t all_heads = m->heads + 2 * (int64_t)m->kv_heads;
  int64_t per_row = m->hidden + all_heads * m->head_dim + (int64_t)m->heads * m->head_dim +
                    gate_up_width(m) + m->inner;
  return per_row * rows + attention_size(m, longest) * threads;
}

static void together(pool *p) {
  atomic_store(&p->t.arrived, 0);
  atomic_store(&p->t.sense, 0);
  atomic_store(&p->finished, 0);
  if (p->t.count > 1) {
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->round, 1);
    pthread_cond_broadcast(&p->begin);
    pthread_mutex_unlock(&p->lock);
  }
  forward(&p->t, 0);
  for (int spins = 0; atomic_load(&p->finished) < p->t.count - 1; spins++)
    if (spins > 1000) sched_yield();
}

/* The pass over all layers: b->out from b->x. */
void quire_forward(void *team_of_threads, const model *m, const batch *b) {
  pool *p = team_of_threads;
  p->t.m = m;
  p->t.b = b;
  p->t.one.l = NULL;
  together(p);
}

/* One linear map: y [rows][outputs] from x [rows][inputs]. */
void quire_linear(void *team_of_threads, const linear *l, const float *x, int rows, float *y) {
  pool *p = team_of_threads;
  p->t.one = (map){l, x, y, rows};
  together(p);
}
