/* The arguments of a pass. Mirrored by engine/cpu/library.py. */
#pragma once
#include "linear.h"

typedef struct {
  linear qkv, value; /* no weight of value: qkv has all; else it has only query and key */
  linear output, gate_up, down; /* gate_up: panels of gate and up alternate */
  /* A mixture of experts instead of gate_up and down, one of each for each expert; or NULL. */
  linear router;
  const linear *expert_gate_up, *expert_down;
  /* With a weight: input_gate of x, activated, times the layer's inputs, is mapped and added to x. */
  linear input_gate, input_map;
  /* Norms are [hidden], or NULL. Of what attention and feed-forward read, and of what they add. */
  const float *attention_input, *attention_output, *feed_input, *feed_output;
  const float *experts_output; /* of what a mixture adds */
  /* Where experts are in parallel with a feed-forward: of what router and experts read, which is x,
   * and of what the feed-forward adds to their results. NULL: they are in its place. */
  const float *router_input, *experts_input, *parallel_output;
  const float *expert_scales; /* [experts], of the chosen ones' weights, or NULL */
  const float *input_norm;    /* of what is added of the layer's inputs */
  const float *head_norms;    /* [normed_heads][head_dim], of the first heads of a row */
  const float *whole_qk_norm; /* [heads + kv_heads][head_dim], of all heads at once, or NULL */
  void *cache;          /* [blocks][2][kv_heads][block_size][head_dim] */
  int32_t kv_heads, head_dim, inner; /* inner: of its feed-forward */
  int32_t normed_heads; /* heads are those of query, key and value */
  int32_t has_keys;     /* 0: the cache is that of an earlier layer, and qkv has only the query */
  int32_t window;       /* tokens visible at most; 0: all */
  int32_t rope;         /* the number of its rotations; negative: it has none */
  float scale;
  float factor; /* x is multiplied by it in the end */
} layer;

typedef struct {
  const layer *layers;
  const float *norm;
  int32_t num_layers;
  int32_t last_keys; /* the last layer with keys: after it only kept rows are needed */
  int32_t hidden, heads;
  int32_t kv_heads, head_dim, inner; /* the most of any layer */
  int32_t inputs; /* what each layer reads of a token besides x */
  int32_t block_size;
  int32_t cache_kind; /* of the elements: FLOAT32, BFLOAT16 or FLOAT16 */
  int32_t deterministic; /* a row's result does not depend on the batch, nor on how a prompt is cut */
  int32_t gated; /* GATED_SILU or another */
  int32_t experts, top_k, expert_inner; /* of each mixture; no experts: there is none */
  int32_t renormalised; /* the chosen experts' weights sum to one */
  float residual;       /* what a mixture is multiplied by when it is added */
  float eps;
} model;

typedef struct batch {
  int32_t rows, kept_rows, table_width, longest;
  float *x;                  /* [rows][hidden], embeddings in, overwritten */
  const float *rotations;    /* [ropes][rows][head_dim], cosine and sine of each pair, alternating */
  const float *inputs;       /* [rows][num_layers][inputs], or NULL */
  const float *query_factors; /* [rows], of rotated queries, or NULL */
  const int64_t *positions;  /* [rows] */
  const int64_t *sequences;  /* [rows], index of the row's table; a sequence's rows are adjacent */
  const int64_t *tables;     /* [sequences][table_width], block numbers */
  const int64_t *kept;       /* [kept_rows], rows whose final states are needed, increasing */
  float *out;                /* [kept_rows][hidden], final states, normalised */
  float *scratch;            /* quire_scratch() floats */
  const struct batch *later; /* the kept rows alone, for layers after the last one with keys */
} batch;
