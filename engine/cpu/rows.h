/* Reads rows of a matrix back from its panels, as float32: the embeddings of tokens. */
#pragma once
#include "linear.h"

INLINE float one_float16(const void *p) {
#if defined(FILLS_AVX512) || defined(FILLS_AVX2)
  uint16_t bits;
  memcpy(&bits, p, sizeof(bits));
  return _cvtsh_ss(bits);
#else
  return (float)*(const _Float16 *)p;
#endif
}

INLINE float one_bfloat16(const uint16_t *p) {
  const uint32_t bits = (uint32_t)*p << 16;
  float found;
  memcpy(&found, &bits, sizeof(found));
  return found;
}

static void float_row(int kind, int inputs, const void *panel, int at, float *to) {
  const uint16_t *halves = panel;
  if (kind == FLOAT32)
    for (int i = 0; i < inputs; i++) to[i] = ((const float *)panel)[i * PANEL + at];
  else if (kind == BFLOAT16)
    for (int i = 0; i < inputs; i++)
      to[i] = one_bfloat16(halves + i * PANEL + at % LANES * 2 + at / LANES);
  else
    for (int i = 0; i < inputs; i++)
      to[i] = one_bfloat16(halves + i / 2 * 2 * PANEL + at * 2 + i % 2);
}

/* The codes of output `at` of a panel. */
INLINE void codes_of(const int kind, const uint8_t *codes, int at, float *to) {
  for (int k = 0; k < STEPS; k++) {
    const uint8_t *four = codes + (is_nibbles(kind) ? k / 2 : k) * PANEL * 4 + at * 4;
    for (int i = 0; i < 4; i++) {
      const int nibble = four[i] >> k % 2 * 4 & 15;
      to[4 * k + i] = kind == NIBBLES_MX  ? mx_levels[nibble]
                      : is_nibbles(kind) ? nibble
                                         : (int8_t)four[i];
    }
  }
}

/* GROUP_INPUTS weights. Products and differences are rounded one by one. */
INLINE void group_row(const int kind, const char *header, const char *scales, int at, float *to) {
  float scale[2], minimum[2] = {0, 0};
  const uint8_t *small = (const uint8_t *)scales;
  const float *wide = (const float *)scales;
  codes_of(kind, small + scales_bytes(kind), at, to);
  for (int half = 0; half < 2; half++)
    switch (kind) {
    case NIBBLES_K:
      scale[half] = one_float16(header + 2 * at) * small[at];
      minimum[half] = one_float16(header + 2 * (PANEL + at)) * small[PANEL + at];
      break;
    case BYTES_K:
      scale[half] = one_float16(header + 2 * at) * (int8_t)small[PANEL * half + at];
      break;
    case BYTES_FLOAT:
      scale[half] = wide[PANEL * half + at];
      minimum[half] = wide[PANEL * (2 + half) + at];
      break;
    case NIBBLES_MX: {
      const uint32_t bits = (uint32_t)small[at] << 23;
      memcpy(&scale[half], &bits, sizeof(bits));
      break;
    }
    default:
      scale[half] = one_float16(scales + 2 * at);
      if (kind == NIBBLES) minimum[half] = scale[half] * 8;
      if (kind == NIBBLES_ZERO) minimum[half] = scale[half] * small[2 * PANEL + at];
    }
  for (int i = 0; i < GROUP_INPUTS; i++) to[i] *= scale[i / (GROUP_INPUTS / 2)];
  if (kind == BYTES || kind == BYTES_K || kind == NIBBLES_MX) return;
  for (int i = 0; i < GROUP_INPUTS; i += LANES)
    store(to + i, held(load(to + i)) - minimum[i / (GROUP_INPUTS / 2)]);
}

INLINE void integer_row(const int kind, int inputs, const char *panel, int at, float *to) {
  for (int g = 0; g * GROUP_INPUTS < inputs; g++) {
    const int left = inputs - g * GROUP_INPUTS;
    const char *header = panel + group_begin(kind, g / SUPER * SUPER) - header_bytes(kind);
    const char *scales = panel + group_begin(kind, g);
    float *own = to + g * GROUP_INPUTS, rest[GROUP_INPUTS];
    if (left >= GROUP_INPUTS) {
      group_row(kind, header, scales, at, own);
    } else {
      group_row(kind, header, scales, at, rest);
      memcpy(own, rest, sizeof(float) * left);
    }
  }
}

/* to[count][inputs]: outputs `index` of the matrix, without the bias. False, and nothing is written,
 * if one is not among them. */
static int rows_of(const linear *l, const int64_t *index, int count, float *to) {
  for (int r = 0; r < count; r++)
    if (index[r] < 0 || index[r] >= l->outputs) return 0;
  for (int r = 0; r < count; r++, to += l->inputs) {
    const char *panel = (const char *)l->weight + index[r] / PANEL * panel_bytes(l);
    const int at = index[r] % PANEL;
    switch (l->kind) {
    case NIBBLES: integer_row(NIBBLES, l->inputs, panel, at, to); break;
    case NIBBLES_K: integer_row(NIBBLES_K, l->inputs, panel, at, to); break;
    case BYTES: integer_row(BYTES, l->inputs, panel, at, to); break;
    case BYTES_K: integer_row(BYTES_K, l->inputs, panel, at, to); break;
    case BYTES_FLOAT: integer_row(BYTES_FLOAT, l->inputs, panel, at, to); break;
    case NIBBLES_ZERO: integer_row(NIBBLES_ZERO, l->inputs, panel, at, to); break;
    case NIBBLES_MX: integer_row(NIBBLES_MX, l->inputs, panel, at, to); break;
    default: float_row(l->kind, l->inputs, panel, at, to);
    }
  }
  return 1;
}
