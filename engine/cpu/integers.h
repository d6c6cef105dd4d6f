/* Products of weights of 4 or 8 bits in integers.
 *
 * The inputs of a row become int8 too, with a scale for each GROUP_INPUTS of them, so that products
 * are integers, whose sums are exact; each group's sum is then multiplied by both scales and added
 * in float32, group after group. So a row's results do not depend on the other rows.
 *
 * A panel is a sequence of groups: the group's scales, then its codes, [inputs / 4][PANEL][4]. Of
 * 4-bit codes a byte holds those of input i in its low half and of i + 4 in its high half. In kinds
 * whose scales have two factors, eight groups follow one header with the common factors, and are
 * multiplied as a whole, with inputs that have one scale, too (super_blocks.h).
 *
 *   kind          weight                               group's scales           header
 *   NIBBLES       s (code - 8)                         s: float16
 *   NIBBLES_K     d s code - e m                       s, m: uint8, s < 64      d, e: float16
 *   BYTES         s code                               s: float16
 *   BYTES_K       d s code, s for each 16 inputs,      s: int8 [2]              d: float16
 *                 codes of -32 to 32
 *   BYTES_FLOAT   s code - m, both for each 16 inputs  s, m: float32 [2]
 *   NIBBLES_ZERO  s (code - zero)                      s: float16, zero: uint8
 *   NIBBLES_MX    s level, the code's of `mx_levels`   s: uint8, the exponent of a float32
 */
#pragma once
#include <float.h>

#include "vectors.h"

enum { NIBBLES = 16, NIBBLES_K, BYTES, BYTES_K, BYTES_FLOAT, NIBBLES_ZERO, NIBBLES_MX };
#define GROUP_INPUTS 32
#define STEPS (GROUP_INPUTS / 4)
#define SUPER 8 /* groups that share a header */
#define INTEGER_ROWS 6 /* of a tile, at most */
/* Bytes to prefetch ahead where one tile has all rows: to the L1 cache, and to the L2. */
#define NEAR_AHEAD 4096
#define FAR_AHEAD 8192
/* Groups that all rows use before the next ones are read: those of a header. */
#define INTEGER_BLOCK SUPER

INLINE int is_integer(int kind) { return kind >= NIBBLES; }
INLINE int is_nibbles(int kind) {
  return kind == NIBBLES || kind == NIBBLES_K || kind == NIBBLES_ZERO || kind == NIBBLES_MX;
}

INLINE int64_t header_bytes(int kind) {
  return kind == NIBBLES_K ? PANEL * 4 : kind == BYTES_K ? PANEL * 2 : 0;
}
INLINE int has_super_blocks(int kind) { return header_bytes(kind) > 0; }
INLINE int64_t scales_bytes(int kind) {
  return PANEL * (kind == BYTES_FLOAT ? 16 : kind == NIBBLES_ZERO ? 3 : kind == NIBBLES_MX ? 1 : 2);
}
INLINE int64_t group_bytes(int kind) {
  return scales_bytes(kind) + PANEL * GROUP_INPUTS / (is_nibbles(kind) ? 2 : 1);
}
/* Where a group begins in its panel, after the header. */
INLINE int64_t group_begin(int kind, int64_t group) {
  return group * group_bytes(kind) + (group / SUPER + 1) * header_bytes(kind);
}

/* Twice the numbers of E2M1. */
static const int8_t mx_levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* --- vectors of bytes ------------------------------------------------------------------------ */

#if defined(FILLS_AVX512) && defined(__AVX512VNNI__)
#define HAS_VNNI 1
INLINE ivec dot_bytes(ivec sums, ivec codes, ivec x) {
  return (ivec)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)codes, (__m512i)x);
}
#elif defined(FILLS_AVX2) && defined(__AVXVNNI__)
#define HAS_VNNI 1
INLINE ivec dot_bytes(ivec sums, ivec codes, ivec x) {
  return (ivec)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)codes, (__m256i)x);
}
#elif defined(FILLS_AVX2)
#define HAS_VNNI 0
#else
/* A build for tests, or a CPU with wide vectors and no VNNI. */
#define HAS_VNNI 1
INLINE ivec dot_bytes(ivec sums, ivec codes, ivec x) {
#if defined(FILLS_AVX512) && defined(__AVX512BW__)
  const __m512i one = _mm512_set1_epi16(1), c = (__m512i)codes, v = (__m512i)x;
  const __m512i low = _mm512_set1_epi8(15);
  /* Two steps of four bits, because pairs of products of eight do not fit 16 bits. */
  const __m512i high = _mm512_and_si512(_mm512_srli_epi16(c, 4), low);
  const __m512i a = _mm512_madd_epi16(_mm512_maddubs_epi16(_mm512_and_si512(c, low), v), one);
  const __m512i b = _mm512_madd_epi16(_mm512_maddubs_epi16(high, v), one);
  return sums + (ivec)a + ((ivec)b << 4);
#else
  uint8_t c[4 * LANES];
  int8_t v[4 * LANES];
  memcpy(c, &codes, sizeof(c));
  memcpy(v, &x, sizeof(v));
  for (int i = 0; i < 4 * LANES; i++) sums[i / 4] += c[i] * v[i];
  return sums;
#endif
}
#endif

/* GROUP_INPUTS inputs of a row: an eighth of what SUPER groups have. Without VNNI it has a second
 * cache line, of the same codes as int16. */
typedef struct {
  int8_t codes[GROUP_INPUTS];
  float scale;
  int32_t minus_8; /* times the sum of the codes: undoes what an offset of 8 in weights adds */
  int32_t minus_128, minus_128_of[2]; /* the same for 128, and for each half of the inputs */
  float scaled_of[2]; /* the sum of each half's codes times the scale */
#if !HAS_VNNI
  /* The codes as pairs of int16: the first and third of each four, and the second and fourth. */
  int32_t even[STEPS] __attribute__((aligned(64))), odd[STEPS];
#endif
} __attribute__((aligned(64))) eighth;
_Static_assert(sizeof(eighth) == (HAS_VNNI ? 64 : 128), "whole cache lines");

/* Four adjacent codes of a row, repeated in every element. */
INLINE ivec splat_codes(const int8_t *p) {
  int32_t four;
  memcpy(&four, p, sizeof(four));
  return four + (ivec){0};
}

INLINE ivec splat_integer(const int32_t *p) { return *p + (ivec){0}; }

INLINE ivec load_bytes(const void *p) { return *(const memory_ivec *)p; }

/* The levels of bytes below 16. */
INLINE ivec levels_of(ivec codes) {
#if defined(FILLS_AVX512) && defined(__AVX512BW__)
  const __m512i levels = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)mx_levels));
  return (ivec)_mm512_shuffle_epi8(levels, (__m512i)codes);
#elif defined(FILLS_AVX2)
  const __m256i levels = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)mx_levels));
  return (ivec)_mm256_shuffle_epi8(levels, (__m256i)codes);
#else
  uint8_t c[4 * LANES];
  memcpy(c, &codes, sizeof(c));
  for (int i = 0; i < 4 * LANES; i++) c[i] = (uint8_t)mx_levels[c[i]];
  memcpy(&codes, c, sizeof(c));
  return codes;
#endif
}

/* Bytes below 16, less 8. */
INLINE ivec minus_eight(ivec codes) {
  /* Four bytes at once: with bit 7 set none borrows from the next, and flipping it subtracts 128. */
  return (ivec)((((uvec)codes | 0x80808080u) - 0x08080808u) ^ 0x80808080u);
}

typedef int16_t shorts __attribute__((vector_size(4 * LANES)));

/* Repeats an int16 in both halves of each element. */
INLINE ivec repeated(ivec v) { return (v & 0xffff) | v << 16; }
INLINE int32_t pair_of(int32_t low, int32_t high) {
  return (int32_t)(((uint32_t)low & 0xffff) | (uint32_t)high << 16);
}

/* sums + a . b, whose elements are pairs of int16. */
INLINE ivec dot_shorts(ivec sums, ivec a, ivec b) {
#if defined(FILLS_AVX512) && defined(__AVX512VNNI__)
  return (ivec)_mm512_dpwssd_epi32((__m512i)sums, (__m512i)a, (__m512i)b);
#elif defined(FILLS_AVX2)
  return sums + (ivec)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
  return sums + (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}

/* The even bytes of one vector and the odd bytes of another. */
INLINE ivec either_byte(ivec even, ivec odd) {
  return (even & 0x00ff00ff) | (odd & (int32_t)0xff00ff00);
}

/* Returns `sums` unchanged. Keeps GCC from adding two products first and then moving every sum to
 * another register. */
INLINE ivec keep_order(ivec sums) {
#if !HAS_VNNI
  __asm__("" : "+x"(sums));
#endif
  return sums;
}

/* Unrolls the steps of a group, but not with VNNI: GCC would load all codes first and run out of
 * registers. */
#if HAS_VNNI
#define UNROLL_STEPS _Pragma("GCC unroll 1")
#else
#define UNROLL_STEPS _Pragma("GCC unroll 4")
#endif

/* Adds products of 4-bit codes. Without VNNI the sums are 16-bit: a group's are below 2^15. */
INLINE ivec add_nibbles(ivec sums, ivec codes, ivec x) {
#if HAS_VNNI
  return dot_bytes(sums, codes, x);
#else
  const __m256i pairs = _mm256_maddubs_epi16((__m256i)codes, (__m256i)x);
  return keep_order((ivec)_mm256_add_epi16((__m256i)sums, pairs));
#endif
}
INLINE ivec whole_sums(ivec sums) {
#if HAS_VNNI
  return sums;
#else
  return (ivec)_mm256_madd_epi16((__m256i)sums, _mm256_set1_epi16(1));
#endif
}
/* Adds such sums times integers, of which `factors_of_sums` makes what this multiplies by. */
INLINE ivec factors_of_sums(ivec integers) { return HAS_VNNI ? integers : repeated(integers); }
INLINE ivec add_scaled(ivec total, ivec sums, ivec factors) {
#if HAS_VNNI
  return total + sums * factors;
#else
  return dot_shorts(total, sums, factors);
#endif
}

/* Adds products of 8-bit codes; with VNNI codes are 128 too large, which `first_sums` undoes.
 * `small`: codes are -12 to 12, so that 16-bit sums of 32 inputs are below 2^15. */
INLINE ivec add_bytes(const int small, ivec sums, ivec codes, ivec x) {
#if HAS_VNNI
  (void)small;
  return dot_bytes(sums, codes ^ (int32_t)0x80808080, x);
#else
  const __m256i w = (__m256i)codes, one = _mm256_set1_epi16(1);
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8((__m256i)x, w));
  if (small) return keep_order((ivec)_mm256_add_epi16((__m256i)sums, pairs));
  return keep_order(sums + (ivec)_mm256_madd_epi16(pairs, one));
#endif
}
#if !HAS_VNNI
/* Adds 256 times the products of four inputs' 8-bit codes, of R rows by a panel. Pairs of int16 take
 * fewer instructions than `add_bytes`, which must move signs, but only where weights, once widened,
 * serve several rows. */
INLINE void add_shorts(const int R, ivec sums[][2], const char *codes, const eighth *x,
                       int64_t stride, int step) {
  ivec even[2], odd[2];
  for (int p = 0; p < 2; p++) {
    const ivec all = load_bytes(codes + p * LANES * 4);
    even[p] = (ivec)((shorts)all << 8), odd[p] = all & (int32_t)0xff00ff00;
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; r++) {
    const ivec first = splat_integer(&x[r * stride].even[step]);
    for (int p = 0; p < 2; p++) sums[r][p] = keep_order(dot_shorts(sums[r][p], even[p], first));
    const ivec second = splat_integer(&x[r * stride].odd[step]);
    for (int p = 0; p < 2; p++) sums[r][p] = keep_order(dot_shorts(sums[r][p], odd[p], second));
  }
}
/* Adds the products of two steps, as 16-bit sums below 2^15. `codes`: 0 to 64, those of -32 to 32 plus
 * 32. */
INLINE ivec products_of_two(const ivec codes[2], const int8_t *x) {
  const __m256i first = _mm256_maddubs_epi16((__m256i)codes[0], (__m256i)splat_codes(x));
  const __m256i second = _mm256_maddubs_epi16((__m256i)codes[1], (__m256i)splat_codes(x + 4));
  return (ivec)_mm256_add_epi16(first, second);
}
/* Adds 32 to bytes of -32 to 32. */
INLINE ivec plus_32(ivec codes) {
  return (ivec)_mm256_add_epi8((__m256i)codes, _mm256_set1_epi8(32));
}
#endif
INLINE vec to_floats(ivec v) { return __builtin_convertvector(v, vec); }

/* As many float16, uint8 or int8 as a vector has floats. */
INLINE vec load_float16(const void *p) {
#if defined(FILLS_AVX512)
  return (vec)_mm512_cvtph_ps(_mm256_loadu_si256(p));
#elif defined(FILLS_AVX2)
  return (vec)_mm256_cvtph_ps(_mm_loadu_si128(p));
#else
  vec found;
  for (int i = 0; i < LANES; i++) found[i] = (float)((const _Float16 *)p)[i];
  return found;
#endif
}
/* Stores float16, to nearest; what is too large becomes the largest or least. */
INLINE void store_float16(void *p, vec v) {
  const vec most = splat(65504), least = splat(-65504);
  v = choose(v > most, most, choose(v < least, least, v));
#if defined(FILLS_AVX512)
  _mm256_storeu_si256(p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(FILLS_AVX2)
  _mm_storeu_si128(p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
#else
  for (int i = 0; i < LANES; i++) ((_Float16 *)p)[i] = (_Float16)v[i];
#endif
}
INLINE ivec load_uint8(const void *p) {
#if defined(FILLS_AVX512)
  return (ivec)_mm512_cvtepu8_epi32(_mm_loadu_si128(p));
#elif defined(FILLS_AVX2)
  return (ivec)_mm256_cvtepu8_epi32(_mm_loadl_epi64(p));
#else
  ivec found;
  for (int i = 0; i < LANES; i++) found[i] = ((const uint8_t *)p)[i];
  return found;
#endif
}

/* --- the inputs ------------------------------------------------------------------------------ */

INLINE ivec nearest(vec x) {
#if defined(FILLS_AVX512)
  return (ivec)_mm512_cvtps_epi32((__m512)x);
#elif defined(FILLS_AVX2)
  return (ivec)_mm256_cvtps_epi32((__m256)x);
#else
  ivec found;
  for (int i = 0; i < LANES; i++) found[i] = (int32_t)rintf(x[i]);
  return found;
#endif
}

INLINE vec magnitude(vec x) { return (vec)((ivec)x & 0x7fffffff); }

/* `most`: the largest finite magnitudes; `odd`: NaN if an input is not finite. */
INLINE void measure_group(const float *x, vec *most, vec *odd) {
  for (int i = 0; i < GROUP_INPUTS; i += LANES) {
    const vec size = magnitude(load(x + i));
    *most = choose((size < INFINITY) & (size > *most), size, *most);
    *odd += size * 0;
  }
}

/* 0 for a peak so small that 127 / peak is infinite. */
INLINE float inverse_of(float peak) { return peak > 127.0f / FLT_MAX ? 127.0f / peak : 0; }

/* `sums`: of each half's codes. Inputs that are not finite have the code 0. */
INLINE void round_codes(const float *x, float inverse, int8_t *codes, int32_t sums[2]) {
  for (int half = 0; half < 2; half++) {
    ivec total = {0};
    for (int i = 0; i < GROUP_INPUTS / 2; i += LANES, x += LANES, codes += LANES) {
      const vec v = load(x), finite = choose(magnitude(v) < INFINITY, v, (vec){0});
      const ivec code = nearest(finite * inverse);
      store_int8(codes, code);
      total += code;
    }
    sums[half] = sum_of_integers(total);
  }
}

/* Rounds GROUP_INPUTS floats so that the largest becomes 127 or -127; all become 0 if it is so small
 * that 127 / peak is infinite. NaN and infinite inputs give NaN in every result. */
static void round_group(const float *x, eighth *to) {
  vec most = {0}, odd = {0};
  int32_t sums[2];
  measure_group(x, &most, &odd);
  const float peak = largest(most), scale = peak / 127.0f + sum(odd);
  round_codes(x, inverse_of(peak), to->codes, sums);
  to->scale = scale;
  to->minus_8 = -8 * (sums[0] + sums[1]);
  to->minus_128 = 16 * to->minus_8;
  for (int h = 0; h < 2; h++) {
    to->minus_128_of[h] = -128 * sums[h];
    to->scaled_of[h] = scale * (float)sums[h];
  }
#if !HAS_VNNI
  const shorts codes = (shorts)load_bytes(to->codes);
  *(memory_ivec *)to->even = (ivec)(codes << 8 >> 8);
  *(memory_ivec *)to->odd = (ivec)(codes >> 8);
#endif
}

INLINE int groups_of(int inputs) { return (inputs + GROUP_INPUTS - 1) / GROUP_INPUTS; }
/* Groups from one row to the next: an odd number, so that rows do not collide in the L1 cache. */
INLINE int row_groups(int inputs) { return groups_of(inputs) | 1; }

static void round_inputs(const float *x, int64_t stride, int rows, int inputs, eighth *to) {
  const int groups = groups_of(inputs), whole = inputs / GROUP_INPUTS;
  for (int r = 0; r < rows; r++, x += stride, to += row_groups(inputs)) {
    for (int g = 0; g < whole; g++) round_group(x + g * GROUP_INPUTS, to + g);
    if (whole < groups) {
      float rest[GROUP_INPUTS] = {0};
      memcpy(rest, x + whole * GROUP_INPUTS, sizeof(float) * (inputs - whole * GROUP_INPUTS));
      round_group(rest, to + whole);
    }
  }
}

/* --- a tile ---------------------------------------------------------------------------------- */

/* What the sums of a group are multiplied by, and what is subtracted, for LANES outputs; one of each
 * for each half of the inputs where they differ. */
typedef struct {
  vec scale[2], minimum[2];
  ivec zero;
} factors;

/* `at`: the first of the outputs in the panel. */
INLINE factors factors_of(const int kind, const char *scales, int at) {
  factors f;
  if (kind == NIBBLES || kind == BYTES || kind == NIBBLES_ZERO) {
    f.scale[0] = load_float16(scales + 2 * at);
    if (kind == NIBBLES_ZERO) f.zero = load_uint8(scales + 2 * PANEL + at);
  } else if (kind == NIBBLES_MX) {
    f.scale[0] = (vec)(load_uint8(scales + at) << 23);
  } else
    for (int half = 0; half < 2; half++) {
      f.scale[half] = load((const float *)scales + PANEL * half + at);
      f.minimum[half] = load((const float *)scales + PANEL * (2 + half) + at);
    }
  return f;
}

/* Whether each half of a group's inputs has its own scales, and so sums. */
INLINE int has_halves(int kind) { return kind == BYTES_FLOAT; }

/* The most rows that a tile multiplies by a whole panel. With more it takes one half after the other,
 * so that its sums, and those of each row's products, stay in registers. `in_shorts` tiles always take
 * a whole panel. */
INLINE int most_whole_panel_rows(int kind) { return LANES == 8 ? 2 : has_halves(kind) ? 4 : 6; }

/* Whether a tile of R rows multiplies pairs of int16 instead of bytes (`add_shorts`). */
INLINE int in_shorts(int kind, int R) { return !HAS_VNNI && kind == BYTES && R > 2; }

/* What the sums of a group start with, or of a half of its inputs where they are apart: what undoes
 * the offset of codes. */
INLINE ivec first_sums(const int kind, const eighth *e, int half) {
  if (!HAS_VNNI || kind == NIBBLES_ZERO) return (ivec){0};
  if (kind == NIBBLES) return splat_integer(&e->minus_8);
  return splat_integer(has_halves(kind) ? &e->minus_128_of[half] : &e->minus_128);
}

INLINE ivec less_zeros(ivec sums, ivec zero, const eighth *e) {
  return sums + ((zero * splat_integer(&e->minus_8)) >> 3);
}

/* Adds a group's sums, `u` of the second half of the inputs if they are apart. */
INLINE vec add_group(const int kind, vec acc, ivec t, ivec u, const factors *f, const eighth *e) {
  acc += to_floats(t) * (f->scale[0] * e->scale);
  if (has_halves(kind)) {
    acc -= f->minimum[0] * e->scaled_of[0];
    acc += to_floats(u) * (f->scale[1] * e->scale);
    acc -= f->minimum[1] * e->scaled_of[1];
  }
  return acc;
}

/* How the tiles of a block of weights prefetch: `distance` bytes after what they read. They share the
 * lines, each fetching every `turns`-th from its `turn` on, so that none waits for all of the memory.
 * `far`: to the L2 cache, where the CPU heeds that (Zen 4, Intel): it can wait for more lines at once
 * than the L1. */
typedef struct {
  int32_t distance;
  int turn, turns, far;
} prefetch;
_Static_assert(sizeof(prefetch) <= 16, "passed in registers");

/* The most rows of a tile. */
INLINE int most_rows_of(int kind) { return in_shorts(kind, INTEGER_ROWS) ? 4 : INTEGER_ROWS; }

/* Several tiles fetch the next block while they use this one; `block_bytes`: from one to the next.
 * Which cache is faster was measured (Zen 4). Near: one or two rows, 4-bit kinds without VNNI, and one
 * tile by super-blocks. Far: all others. */
INLINE prefetch prefetch_for(int kind, int rows, int64_t block_bytes) {
  const int tiles = (rows + most_rows_of(kind) - 1) / most_rows_of(kind);
  const int far = rows > 2 && (tiles > 1 || !has_super_blocks(kind)) &&
                  (HAS_VNNI || !is_nibbles(kind));
  return (prefetch){tiles > 1 ? (int32_t)block_bytes : far ? FAR_AHEAD : NEAR_AHEAD, 0, tiles, far};
}

/* Prefetches a tile's share of a group's lines. The halves of a panel, if multiplied one after the
 * other (H = 1), also share them. */
INLINE void prefetch_group(const int kind, const int H, const int h, const char *group,
                           prefetch ahead) {
  const int64_t step = 64 * (H == 2 ? 1 : 2), turns = ahead.turns * step;
  const char *line = group + ahead.distance + h * 64 + ahead.turn * step;
  const char *end = group + ahead.distance + group_bytes(kind);
  if ((HAS_VNNI || !is_nibbles(kind)) && ahead.far)
    for (; line < end; line += turns) __builtin_prefetch(line, 0, 2);
  else
    for (; line < end; line += turns) __builtin_prefetch(line);
}

/* Of a tile of R rows by H halves of a panel. */
#define EACH_SUM                        \
  _Pragma("GCC unroll 6") for (int r = 0; r < R; r++) \
  _Pragma("GCC unroll 2") for (int p = 0; p < H; p++)

/* R rows by H halves of a panel, from half `h` on, over groups `first` to before `last`. */
INLINE void integer_part(const int kind, const int R, const int H, const int h, const eighth *x,
                         int64_t stride, const char *panel, int first, int last, prefetch ahead,
                         float *sums) {
  vec acc[INTEGER_ROWS][2];
  EACH_SUM acc[r][p] = load(sums + r * PANEL + (h + p) * LANES);
  for (int g = first; g < last; g++) {
    const char *scales = panel + group_begin(kind, g);
    const char *codes = scales + scales_bytes(kind) + h * LANES * 4;
    const eighth *own = x + g;
    prefetch_group(kind, H, h, scales, ahead);
    ivec t[INTEGER_ROWS][2], u[INTEGER_ROWS][2]; /* products; of the second half of the inputs */
    EACH_SUM {
      t[r][p] = first_sums(kind, own + r * stride, 0);
      u[r][p] = first_sums(kind, own + r * stride, 1);
    }
    if (is_nibbles(kind)) {
      UNROLL_STEPS
      for (int k = 0; k < STEPS; k += 2, codes += PANEL * 4) {
        ivec a[2], b[2];
        for (int p = 0; p < H; p++) {
          const ivec both = load_bytes(codes + p * LANES * 4);
          a[p] = both & 0x0f0f0f0f;
          b[p] = (both >> 4) & 0x0f0f0f0f;
          if (kind == NIBBLES_MX) a[p] = levels_of(a[p]), b[p] = levels_of(b[p]);
        }
        EACH_SUM {
          const int8_t *from = own[r * stride].codes + 4 * k;
          if (kind == NIBBLES_MX) {
            t[r][p] = add_bytes(1, t[r][p], a[p], splat_codes(from));
            t[r][p] = add_bytes(1, t[r][p], b[p], splat_codes(from + 4));
          } else {
            t[r][p] = add_nibbles(t[r][p], a[p], splat_codes(from));
            t[r][p] = add_nibbles(t[r][p], b[p], splat_codes(from + 4));
          }
        }
      }
#if !HAS_VNNI
    } else if (in_shorts(kind, R)) {
#pragma GCC unroll 8
      for (int k = 0; k < STEPS; k++, codes += PANEL * 4)
        add_shorts(R, t, codes, own, stride, k);
      EACH_SUM t[r][p] >>= 8; /* exact: sums are multiples of 256, and below 2^27 */
#endif
    } else {
      UNROLL_STEPS
      for (int k = 0; k < STEPS / 2; k++, codes += PANEL * 4)
        EACH_SUM t[r][p] = add_bytes(0, t[r][p], load_bytes(codes + p * LANES * 4),
                                     splat_codes(own[r * stride].codes + 4 * k));
      UNROLL_STEPS
      for (int k = STEPS / 2; k < STEPS; k++, codes += PANEL * 4)
        EACH_SUM {
          ivec *to = kind == BYTES ? &t[r][p] : &u[r][p];
          *to = add_bytes(0, *to, load_bytes(codes + p * LANES * 4),
                          splat_codes(own[r * stride].codes + 4 * k));
        }
    }
    factors f[2];
    for (int p = 0; p < H; p++) f[p] = factors_of(kind, scales, LANES * (h + p));
    EACH_SUM {
      const eighth *e = own + r * stride;
      const int is_whole = kind == BYTES || kind == BYTES_FLOAT;
      ivec sum = is_whole ? t[r][p] : whole_sums(t[r][p]);
      const ivec other = is_whole ? u[r][p] : whole_sums(u[r][p]);
      if (kind == NIBBLES && !HAS_VNNI) sum += splat_integer(&e->minus_8);
      if (kind == NIBBLES_ZERO) sum = less_zeros(sum, f[p].zero, e);
      acc[r][p] = add_group(kind, acc[r][p], sum, other, &f[p], e);
    }
  }
  EACH_SUM store(sums + r * PANEL + (h + p) * LANES, acc[r][p]);
}

INLINE void integer_tile(const int kind, const int R, const eighth *x, int64_t stride,
                         const char *panel, int first, int last, prefetch ahead, float *sums) {
  if (R <= most_whole_panel_rows(kind) || in_shorts(kind, R))
    integer_part(kind, R, 2, 0, x, stride, panel, first, last, ahead, sums);
  else
    for (int h = 0; h < 2; h++)
      integer_part(kind, R, 1, h, x, stride, panel, first, last, ahead, sums);
}

typedef void (*integer_function)(const eighth *x, int64_t stride, const char *panel, int first,
                                 int last, prefetch ahead, float *sums);
#define INTEGER_TILE(KIND, R)                                                                   \
  static void tile_##KIND##_##R(const eighth *x, int64_t stride, const char *panel, int first,  \
                                int last, prefetch ahead, float *sums) {                         \
    integer_tile(KIND, R, x, stride, panel, first, last, ahead, sums);                          \
  }
#define INTEGER_ENTRY(KIND, R) [KIND - NIBBLES][R] = tile_##KIND##_##R,
#define EACH_HEIGHT(DO, KIND)                                                                   \
  DO(KIND, 1) DO(KIND, 2) DO(KIND, 3) DO(KIND, 4) DO(KIND, 5) DO(KIND, 6)
#define EACH_INTEGER(DO)                                                                        \
  EACH_HEIGHT(DO, NIBBLES) EACH_HEIGHT(DO, BYTES) EACH_HEIGHT(DO, BYTES_FLOAT)                  \
  EACH_HEIGHT(DO, NIBBLES_ZERO) EACH_HEIGHT(DO, NIBBLES_MX)
EACH_INTEGER(INTEGER_TILE)
static const integer_function integer_tiles[][INTEGER_ROWS + 1] = {EACH_INTEGER(INTEGER_ENTRY)};

#include "integer_tiles.h"

/* sums[rows][PANEL] += those of a panel. */
static void sum_integers(int kind, const char *panel, int inputs, const eighth *x, int rows,
                         float *sums) {
  const int groups = groups_of(inputs), stride = row_groups(inputs);
  for (int g = 0; g < groups; g += INTEGER_BLOCK) {
    const int last = g + INTEGER_BLOCK < groups ? g + INTEGER_BLOCK : groups;
    if (rows >= least_tiled_rows(kind)) {
      sum_block_in_tiles(kind, panel, g, last, x, stride, rows, sums);
      continue;
    }
    prefetch ahead = prefetch_for(kind, rows, INTEGER_BLOCK * group_bytes(kind));
    for (int r = 0, left = ahead.turns; left; left--, ahead.turn++) {
      const int height = (rows - r + left - 1) / left;
      integer_tiles[kind - NIBBLES][height](x + (int64_t)r * stride, stride, panel, g, last,
                                            ahead, sums + r * PANEL);
      r += height;
    }
  }
}
