/* The arguments of a pass. Mirrored by engine/cpu/library.py. */
#pragma once
#include "linear.h"

typedef struct {
  linear qkv, output, gate_up, down; /* gate_up: panels of gate and up alternate */
  const float *input_norm, *post_norm; /* [hidden] */
  const float *qk_norm; /* [heads + kv_heads][head_dim], or NULL */
  void *cache;          /* [blocks][2][kv_heads][block_size][head_dim] */
  int32_t window;       /* tokens visible at most; 0: all */
  float scale;
} layer;

typedef struct {
  const layer *layers;
  const float *norm;
  int32_t num_layers, hidden, heads, kv_heads, head_dim, inner, block_size;
  int32_t cache_kind; /* of the elements: FLOAT32 or BFLOAT16 */
  int32_t deterministic; /* a row's result does not depend on the batch, nor on how a prompt is cut */
  float eps;
} model;

typedef struct {
  int32_t rows, kept_rows, table_width, longest;
  float *x;                  /* [rows][hidden], embeddings in, overwritten */
  const float *rotations;    /* [rows][head_dim], cosine and sine of each pair, alternating */
  const int64_t *positions;  /* [rows] */
  const int64_t *sequences;  /* [rows], index of the row's table; a sequence's rows are adjacent */
  const int64_t *tables;     /* [sequences][table_width], block numbers */
  const int64_t *kept;       /* [kept_rows], rows whose final states are needed, increasing */
  float *out;                /* [kept_rows][hidden], final states, normalised */
  float *scratch;            /* quire_scratch() floats */
} batch;
