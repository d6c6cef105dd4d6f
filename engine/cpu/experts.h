/* A mixture of experts: each row is computed by the few feed-forwards that the router chooses.
 *
 * Rows are sorted by expert, so that an expert's weights are read once for all its rows, and the
 * products of all experts are divided among the threads as those of one matrix. A row's results are
 * added in the order of its experts, so they do not depend on the other rows.
 */
#pragma once
#include "model.h"

#define MIXED_ROWS 256 /* computed at a time, to bound the memory for their copies */
#define MOST_EXPERTS 4096

/* A block of rows: `places` are those of a row's copies in the order of experts. */
typedef struct {
  int rows;
  int64_t hidden, inner; /* strides */
  float *scores;         /* [rows][experts] */
  float *weights;        /* [rows][top_k] */
  float *copies;         /* [rows * top_k][hidden] */
  float *gated;          /* [rows * top_k][inner] */
  float *results;        /* [rows * top_k][hidden] */
  int32_t *chosen;       /* [rows][top_k] */
  int32_t *places;       /* [rows][top_k] */
  int32_t *starts;       /* [experts + 1]: the first place of each expert's rows */
  int32_t *hit;          /* [experts]: those with rows; hit[experts] is their number */
} mixture;

static int64_t mixture_scratch(const model *m, int rows) {
  if (!m->experts) return 0;
  const int64_t block = rows < MIXED_ROWS ? rows : MIXED_ROWS, copies = block * m->top_k;
  return block * m->experts + 3 * copies + 2 * (m->experts + 1) +
         copies * (2 * m->hidden + m->expert_inner + 3 * APART);
}

static mixture mixture_at(const model *m, int rows, float *scratch) {
  const int64_t block = rows < MIXED_ROWS ? rows : MIXED_ROWS, copies = block * m->top_k;
  mixture x = {.hidden = m->hidden + APART, .inner = m->expert_inner + APART};
  x.copies = scratch;
  x.gated = x.copies + copies * x.hidden;
  x.results = x.gated + copies * x.inner;
  x.scores = x.results + copies * x.hidden;
  x.weights = x.scores + block * m->experts;
  x.chosen = (int32_t *)(x.weights + copies);
  x.places = x.chosen + copies;
  x.starts = x.places + copies;
  x.hit = x.starts + m->experts + 1;
  return x;
}

/* Chooses the experts with the largest scores, of equal ones the first, and computes their weights:
 * a softmax over all experts' scores, or over those of the chosen ones. */
static void choose_experts(const model *m, const layer *l, const float *scores, int32_t *chosen,
                           float *weights) {
  uint8_t taken[MOST_EXPERTS] = {0};
  for (int k = 0; k < m->top_k; k++) {
    int best = -1;
    for (int e = 0; e < m->experts; e++)
      if (!taken[e] && (best < 0 || scores[e] > scores[best])) best = e;
    taken[best] = 1;
    chosen[k] = best;
  }
  const float most = scores[chosen[0]];
  float total = 0;
  for (int k = 0; k < m->top_k; k++) {
    weights[k] = expf(scores[chosen[k]] - most);
    if (m->renormalised) total += weights[k];
  }
  if (!m->renormalised)
    for (int e = 0; e < m->experts; e++) total += expf(scores[e] - most);
  for (int k = 0; k < m->top_k; k++) {
    weights[k] /= total;
    if (l->expert_scales) weights[k] *= l->expert_scales[chosen[k]];
  }
}

/* Gives each of the rows' choices a place, so that those of an expert are adjacent. */
static void sort_by_expert(const model *m, mixture *x) {
  const int count = x->rows * m->top_k;
  int hits = 0;
  memset(x->starts, 0, sizeof(int32_t) * (m->experts + 1));
  for (int i = 0; i < count; i++) x->starts[x->chosen[i] + 1]++;
  for (int e = 0; e < m->experts; e++) {
    if (x->starts[e + 1]) x->hit[hits++] = e;
    x->starts[e + 1] += x->starts[e];
  }
  x->hit[m->experts] = hits;
  for (int i = 0; i < count; i++) x->places[i] = x->starts[x->chosen[i]]++;
  /* Each start has moved to the next one. */
  memmove(x->starts + 1, x->starts, sizeof(int32_t) * m->experts);
  x->starts[0] = 0;
}

/* The maps of all experts that have rows, divided among threads as if they were one. */
static void apply_experts(const linear *maps, const model *m, const mixture *x, team *t,
                          const float *from, int64_t in_stride, float *to, int64_t out_stride,
                          int width, int outcome) {
  const int unit = unit_of(outcome), each = panels_of(maps) / unit;
  const int total = each * x->hit[m->experts];
  int first, last, expert = -1;
  room_of_rows room;
  while (claim(t, total, 4 / unit, total, &first, &last))
    for (int end; first < last; first = end) {
      const int now = x->hit[first / each], begin = first % each;
      end = first - begin + each < last ? first - begin + each : last;
      if (now != expert) room = (room_of_rows){NULL, -1};
      expert = now;
      const int64_t place = x->starts[now];
      apply_panels(&maps[now], begin, begin + end - first, from + place * in_stride, in_stride,
                   x->starts[now + 1] - (int)place, to + place * out_stride, out_stride, width,
                   outcome, &room);
    }
}

/* Adds to `to` the mixture of a block of rows of `in`. */
static void add_block(const model *m, const layer *l, team *t, int thread, int *sense,
                      const float *in, int64_t in_stride, mixture *x, float *to, int64_t to_stride) {
  const int top_k = m->top_k;
  const float scale = l->experts_input ? 1 : m->residual;
  int first, last;
  share(x->rows, t->count, thread, &first, &last);
  if (l->router_input) { /* results are not needed yet */
    for (int r = first; r < last; r++)
      rms_norm(in + r * in_stride, l->router_input, x->results + r * x->hidden, m->hidden, m->eps);
    barrier(t, sense);
    apply(&l->router, t, x->results, x->hidden, x->rows, x->scores, m->experts, 0, STORED);
  } else
    apply(&l->router, t, in, in_stride, x->rows, x->scores, m->experts, 0, STORED);
  barrier(t, sense);
  for (int r = first; r < last; r++)
    choose_experts(m, l, x->scores + (int64_t)r * m->experts, x->chosen + r * top_k,
                   x->weights + r * top_k);
  barrier(t, sense);
  if (thread == 0) sort_by_expert(m, x);
  barrier(t, sense);
  for (int i = first * top_k; i < last * top_k; i++) {
    const float *from = in + i / top_k * in_stride;
    float *copy = x->copies + x->places[i] * x->hidden;
    if (l->experts_input)
      rms_norm(from, l->experts_input, copy, m->hidden, m->eps);
    else
      memcpy(copy, from, sizeof(float) * m->hidden);
  }
  barrier(t, sense);
  apply_experts(l->expert_gate_up, m, x, t, x->copies, x->hidden, x->gated, x->inner,
                m->expert_inner, m->gated);
  barrier(t, sense);
  apply_experts(l->expert_down, m, x, t, x->gated, x->inner, x->results, x->hidden, 0, STORED);
  barrier(t, sense);
  for (int r = first; r < last; r++) {
    float *sums = x->copies + r * x->hidden, *row = to + r * to_stride;
    memset(sums, 0, sizeof(float) * m->hidden);
    for (int k = r * top_k; k < (r + 1) * top_k; k++) {
      const float *result = x->results + x->places[k] * x->hidden, weight = x->weights[k];
      for (int i = 0; i < m->hidden; i += LANES)
        store(sums + i, load(sums + i) + load(result + i) * weight);
    }
    if (l->experts_output) rms_norm(sums, l->experts_output, sums, m->hidden, m->eps);
    for (int i = 0; i < m->hidden; i += LANES)
      store(row + i, load(sums + i) * scale + load(row + i));
  }
  barrier(t, sense);
}

/* The same for all rows. */
static void add_mixture(const model *m, const layer *l, team *t, int thread, int *sense,
                        const float *in, int64_t in_stride, int rows, float *scratch, float *to,
                        int64_t to_stride) {
  mixture x = mixture_at(m, rows, scratch);
  for (int row = 0; row < rows; row += x.rows) {
    x.rows = rows - row < MIXED_ROWS ? rows - row : MIXED_ROWS;
    add_block(m, l, t, thread, sense, in + row * in_stride, in_stride, &x, to + row * to_stride,
              to_stride);
  }
}
