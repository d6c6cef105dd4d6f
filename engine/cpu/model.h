/* The arguments of a pass. Mirrored by engine/cpu/library.py. */
#pragma once
#include "linear.h"

typedef struct {
  linear qkv, value; /* no weight of value: qkv has all; else it has only query and key */
  linear output, gate_up, down; /* gate_up: panels of gate and up alternate */
  /* A mixture of experts instead of gate_up and down, one of each for each expert; or NULL. */
  linear router;
  const linear *expert_gate_up, *expert_down;
  /* Of what attention and feed-forward read, and of what they add to x: [hidden], or NULL. */
  const float *attention_input, *attention_output, *feed_input, *feed_output;
  const float *qk_norm; /* [heads + kv_heads][head_dim], or NULL */
  const float *whole_qk_norm; /* the same, for norms over all heads of a row at once, or NULL */
  void *cache;          /* [blocks][2][kv_heads][block_size][head_dim] */
  int32_t window;       /* tokens visible at most; 0: all */
  int32_t rope;         /* the number of its rotations; negative: it has none */
  float scale;
} layer;

typedef struct {
  const layer *layers;
  const float *norm;
  int32_t num_layers, hidden, heads, kv_heads, head_dim, inner, block_size;
  int32_t cache_kind; /* of the elements: FLOAT32 or BFLOAT16 */
  int32_t deterministic; /* a row's result does not depend on the batch, nor on how a prompt is cut */
  int32_t gated; /* GATED_SILU or another */
  int32_t experts, top_k, expert_inner; /* of each mixture; no experts: there is none */
  int32_t renormalised; /* the chosen experts' weights sum to one */
  float residual;       /* what a mixture is multiplied by when it is added */
  float eps;
} model;

typedef struct {
  int32_t rows, kept_rows, table_width, longest;
  float *x;                  /* [rows][hidden], embeddings in, overwritten */
  const float *rotations;    /* [ropes][rows][head_dim], cosine and sine of each pair, alternating */
  const float *query_factors; /* [rows], of rotated queries, or NULL */
  const int64_t *positions;  /* [rows] */
  const int64_t *sequences;  /* [rows], index of the row's table; a sequence's rows are adjacent */
  const int64_t *tables;     /* [sequences][table_width], block numbers */
  const int64_t *kept;       /* [kept_rows], rows whose final states are needed, increasing */
  float *out;                /* [kept_rows][hidden], final states, normalised */
  float *scratch;            /* quire_scratch() floats */
} batch;
