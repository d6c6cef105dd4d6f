/* One forward pass of a Llama-like decoder (engine/architecture/families.py) over a batch of rows,
 * in one call.
 *
 * A row is one token of one sequence. Arithmetic is float32, except for products of bfloat16 pairs
 * (linear.h) and of integers (integers.h); weights are float32, bfloat16 or of 4 or 8 bits. Every
 * row attends through its block table to the keys and values of its sequence up to itself, so decode
 * rows and prompt chunks mix freely.
 *
 * vectors.h: vector types. threads.h: the thread team. linear.h: matrix products, which take most
 * of the time; pairs.h and integer_tiles.h: those in AMX tiles (tiles.h). attention.h: attention and
 * the paged cache. experts.h: mixtures of experts. model.h: the arguments of a pass. blocks.h: packs
 * weights, rows.h: reads them back. Compiled by engine/cpu/library.py.
 */
#include "attention.h"
#include "blocks.h"
#include "experts.h"
#include "rows.h"

INLINE void norm_rows(const team *t, int thread, const float *x, const float *weight, float *y,
                      int64_t stride, int rows, const model *m) {
  int first, last;
  share(rows, t->count, thread, &first, &last);
  for (int r = first; r < last; r++)
    rms_norm(x + (int64_t)r * m->hidden, weight, y + r * stride, m->hidden, m->eps);
}

/* Normalises all queries of each row at once, and all its keys. */
static void norm_heads(const team *t, int thread, const layer *l, const model *m, float *qkv,
                       int64_t stride, int rows) {
  const int queries = m->heads * l->head_dim, keys = l->kv_heads * l->head_dim;
  const float *weight = l->whole_qk_norm;
  int first, last;
  share(rows, t->count, thread, &first, &last);
  for (int r = first; r < last; r++) {
    float *x = qkv + r * stride;
    rms_norm(x, weight, x, queries, m->eps);
    rms_norm(x + queries, weight + queries, x + queries, keys, m->eps);
  }
}

/* x += scale * the normalised rows of y, which are overwritten. */
static void add_normed(const team *t, int thread, float *y, int64_t stride, const float *weight,
                       float scale, float *x, int rows, const model *m) {
  int first, last;
  share(rows, t->count, thread, &first, &last);
  for (int r = first; r < last; r++) {
    float *from = y + r * stride, *to = x + (int64_t)r * m->hidden;
    rms_norm(from, weight, from, m->hidden, m->eps);
    for (int i = 0; i < m->hidden; i += LANES) store(to + i, load(from + i) * scale + load(to + i));
  }
}

typedef struct {
  const model *m;
  const batch *b;
} pass;

typedef struct {
  const float *first;
  int64_t stride;
} rows_of_floats;

/* What half a layer reads: x, normalised in `normed` if there is a weight. */
static rows_of_floats input(team *t, int thread, int *sense, const float *x, const float *weight,
                            float *normed, int64_t stride, int rows, const model *m) {
  if (!weight) return (rows_of_floats){x, m->hidden};
  norm_rows(t, thread, x, weight, normed, stride, rows, m);
  barrier(t, sense);
  return (rows_of_floats){normed, stride};
}

/* Adds a map of `in` to x; with a `weight` its result is normalised, in `normed`. */
static void add(const linear *l, team *t, int thread, int *sense, rows_of_floats in,
                const float *weight, float *normed, int64_t stride, float *x, int rows,
                const model *m) {
  if (!weight) {
    apply(l, t, in.first, in.stride, rows, x, m->hidden, 0, ADDED);
  } else {
    apply(l, t, in.first, in.stride, rows, normed, stride, 0, STORED);
    barrier(t, sense);
    add_normed(t, thread, normed, stride, weight, l->scale, x, rows, m);
  }
  barrier(t, sense);
}

/* Adds what a feed-forward's down map makes of `in`, and a mixture of x, to x: each normalised, and
 * their sum again. */
static void add_parallel(const layer *l, team *t, int thread, int *sense, rows_of_floats in,
                         float *normed, int64_t stride, float *x, int rows, float *scratch,
                         const model *m) {
  int first, last;
  apply(&l->down, t, in.first, in.stride, rows, normed, stride, 0, STORED);
  barrier(t, sense);
  share(rows, t->count, thread, &first, &last);
  for (int r = first; r < last; r++)
    rms_norm(normed + r * stride, l->parallel_output, normed + r * stride, m->hidden, m->eps);
  barrier(t, sense);
  add_mixture(m, l, t, thread, sense, x, m->hidden, rows, scratch, normed, stride);
  add_normed(t, thread, normed, stride, l->feed_output, l->down.scale, x, rows, m);
  barrier(t, sense);
}

/* Adds to x what layer `n` makes of its inputs. `kept`: the rows of x, unless they are all. */
static void add_inputs(const layer *l, int n, const batch *b, team *t, int thread, int *sense,
                       const int64_t *kept, float *gated, int64_t gated_stride, float *normed,
                       int64_t stride, float *x, int rows, const model *m) {
  int first, last;
  apply(&l->input_gate, t, x, m->hidden, rows, gated, gated_stride, 0, STORED);
  barrier(t, sense);
  share(rows, t->count, thread, &first, &last);
  for (int r = first; r < last; r++) {
    const float *own = b->inputs + ((kept ? kept[r] : r) * m->num_layers + n) * m->inputs;
    float *gate = gated + r * gated_stride;
    for (int i = 0; i < m->inputs; i += LANES)
      store(gate + i, activated(m->gated, load(gate + i)) * load(own + i));
  }
  barrier(t, sense);
  const rows_of_floats in = {gated, gated_stride};
  add(&l->input_map, t, thread, sense, in, l->input_norm, normed, stride, x, rows, m);
}

static void scale_rows(team *t, int thread, int *sense, float *x, float factor, int rows,
                       const model *m) {
  int first, last;
  share(rows, t->count, thread, &first, &last);
  for (float *at = x + (int64_t)first * m->hidden; at < x + (int64_t)last * m->hidden; at += LANES)
    store(at, load(at) * factor);
  barrier(t, sense);
}

static int64_t scratch_per_row(const model *m) {
  int64_t heads = 2 * (m->heads + (int64_t)m->kv_heads);
  return m->hidden + heads * m->head_dim + m->inner + 4 * APART;
}

static void forward(const void *task, team *t, int thread) {
  const model *m = ((const pass *)task)->m;
  const batch *b = ((const pass *)task)->b;
  const int D = m->head_dim; /* strides are those of the largest layer */
  const int64_t hidden = m->hidden + APART, inner = m->inner + APART;
  const int64_t qkv_width = (int64_t)(m->heads + 2 * m->kv_heads) * D + APART;
  const int64_t mixed_width = (int64_t)m->heads * D + APART;
  float *normed = b->scratch, *qkv = normed + b->rows * hidden;
  float *mixed = qkv + b->rows * qkv_width, *gated = mixed + b->rows * mixed_width;
  float *scratch = gated + b->rows * inner + thread * attention_scratch(m, b->longest);
  float *mixed_rows = gated + b->rows * inner + t->count * attention_scratch(m, b->longest);
  float *x = b->x;
  int rows = b->rows, sense = 0;
  rows_of_floats in;

  for (int n = 0; n < m->num_layers; n++) {
    const layer *l = &m->layers[n];
    in = input(t, thread, &sense, x, l->attention_input, normed, hidden, rows, m);
    apply(&l->qkv, t, in.first, in.stride, rows, qkv, qkv_width, 0, STORED);
    barrier(t, &sense);
    if (l->value.weight) {
      apply(&l->value, t, in.first, in.stride, rows, qkv + l->qkv.outputs, qkv_width, 0, STORED);
      barrier(t, &sense);
    }
    if (l->whole_qk_norm) {
      norm_heads(t, thread, l, m, qkv, qkv_width, rows);
      barrier(t, &sense);
    }
    /* After the last keys and values are stored, only the kept rows matter. */
    const int64_t *kept = n == m->last_keys && b->kept_rows < rows ? b->kept : NULL;
    attend_all(m, l, b, kept, t, qkv, qkv_width, mixed, mixed_width, scratch);
    if (kept) {
      rows = b->kept_rows;
      if (thread == 0) /* kept is increasing, so no row is overwritten before it is moved */
        for (int place = 0; place < rows; place++)
          memmove(x + (int64_t)place * m->hidden, x + kept[place] * m->hidden,
                  sizeof(float) * m->hidden);
    }
    barrier(t, &sense);
    in = (rows_of_floats){mixed, mixed_width};
    add(&l->output, t, thread, &sense, in, l->attention_output, normed, hidden, x, rows, m);
    in = input(t, thread, &sense, x, l->feed_input, normed, hidden, rows, m);
    if (l->gate_up.weight) {
      apply(&l->gate_up, t, in.first, in.stride, rows, gated, inner, l->inner, m->gated);
      barrier(t, &sense);
      in = (rows_of_floats){gated, inner};
      if (l->expert_down)
        add_parallel(l, t, thread, &sense, in, normed, hidden, x, rows, mixed_rows, m);
      else
        add(&l->down, t, thread, &sense, in, l->feed_output, normed, hidden, x, rows, m);
    } else
      add_mixture(m, l, t, thread, &sense, in.first, in.stride, rows, mixed_rows, x, m->hidden);
    if (l->input_gate.weight)
      add_inputs(l, n, b, t, thread, &sense, kept, gated, inner, normed, hidden, x, rows, m);
    if (l->factor != 1) scale_rows(t, thread, &sense, x, l->factor, rows, m);
    if (kept && b->later) b = b->later;
  }
  norm_rows(t, thread, x, m->norm, b->out, m->hidden, rows, m);
}

typedef struct {
  const linear *l;
  const float *x;
  float *y;
  int rows;
} map;

static void one_map(const void *task, team *t, int thread) {
  (void)thread;
  const map *one = task;
  const linear *l = one->l;
  apply(l, t, one->x, l->inputs, one->rows, one->y, l->outputs, 0, STORED);
}

/* --- entry points -------------------------------------------------------------------------- */

int quire_panel(void) { return PANEL; }
int quire_lanes(void) { return LANES; }
int quire_bf16_products(void) { return BF16_PRODUCTS; }
/* Pairs of bfloat16 have room for a multiple of so many inputs. */
int quire_pair_inputs(void) { return PAIR_INPUTS; }

/* Starts threads that compute together until the process ends; NULL if they cannot be started. */
void *quire_team(int threads) { return new_team(threads); }

/* The floats of scratch memory that a batch needs. */
int64_t quire_scratch(const model *m, int rows, int longest, int threads) {
  return scratch_per_row(m) * rows + attention_scratch(m, longest) * threads +
         mixture_scratch(m, rows);
}

/* Runs all layers: computes b->out from b->x. */
void quire_forward(void *threads, const model *m, const batch *b) {
  const pass task = {m, b};
  together(threads, forward, &task);
}

/* One linear map: y [rows][outputs] from x [rows][inputs]. */
void quire_linear(void *threads, const linear *l, const float *x, int rows, float *y) {
  const map task = {l, x, y, rows};
  together(threads, one_map, &task);
}

/* Rows `index` of a weight: y [count][inputs]. False, and nothing is written, if one is not there. */
int quire_rows(const linear *l, const int64_t *index, int count, float *y) {
  return rows_of(l, index, count, y);
}

/* The bytes of a panel of the weight. */
int64_t quire_panel_bytes(const linear *l) { return panel_bytes(l); }

/* Fills the weight, which is zeros, from blocks in files (blocks.h): each output's row begins at this
 * byte of a file, 0 for a row of zeros, and is of this type; `files` are descriptors. Returns 0; an
 * errno; or -1 if a file ends; and for both, in failed_at[2], which file and where. */
int quire_pack_blocks(void *threads, const linear *l, const int32_t *files, const int64_t *begins,
                      const int32_t *types, int64_t *failed_at) {
  return pack_blocks(threads, l, files, begins, types, failed_at);
}

/* Root mean square normalisation of `rows` rows of `size` floats, a multiple of quire_lanes(). */
void quire_rms_norm(const float *x, const float *weight, int rows, int size, float eps, float *y) {
  for (int64_t at = 0; at < (int64_t)rows * size; at += size)
    rms_norm(x + at, weight, y + at, size, eps);
}
