/* Vectors of floats as wide as the machine's registers, in GCC's vector types. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* A test build may set wider vectors than the machine's registers; GCC splits them. */
#ifndef LANES
#if defined(__AVX512F__)
#define LANES 16
#else
#define LANES 8
#endif
#endif
#if LANES == 16 && defined(__AVX512F__)
#define FILLS_AVX512 1
#elif LANES == 8 && defined(__AVX2__)
#define FILLS_AVX2 1
#endif

/* Whether pairs of bfloat16 can be multiplied: in hardware, or in software in a test build. */
#if defined(__AVX512BF16__) || defined(EMULATED_BF16_PRODUCTS) || defined(EMULATED_TILES)
#define BF16_PRODUCTS 1
#else
#define BF16_PRODUCTS 0
#endif
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef uint32_t uvec __attribute__((vector_size(4 * LANES)));
/* The same types in memory, at any alignment. */
typedef float memory_vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t memory_ivec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
/* As many 16-bit integers as a vector has floats. */
typedef uint16_t memory_halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

#if LANES == 16
#define EACH_LANE(F, S) \
  F(0, S), F(1, S), F(2, S), F(3, S), F(4, S), F(5, S), F(6, S), F(7, S), F(8, S), F(9, S), \
      F(10, S), F(11, S), F(12, S), F(13, S), F(14, S), F(15, S)
#else
#define EACH_LANE(F, S) F(0, S), F(1, S), F(2, S), F(3, S), F(4, S), F(5, S), F(6, S), F(7, S)
#endif

INLINE vec load(const float *p) { return *(const memory_vec *)p; }
INLINE void store(float *p, vec v) { *(memory_vec *)p = v; }
INLINE vec splat(float x) { return x - (vec){0}; }

INLINE vec choose(ivec mask, vec yes, vec no) {
  return (vec)(((ivec)yes & mask) | ((ivec)no & ~mask));
}

INLINE float largest(vec v) {
#if defined(FILLS_AVX512)
  return _mm512_reduce_max_ps((__m512)v);
#elif LANES == 8
  vec other = __builtin_shuffle(v, (ivec){4, 5, 6, 7, 0, 1, 2, 3});
  v = choose(other > v, other, v);
  other = __builtin_shuffle(v, (ivec){2, 3, 0, 1, 6, 7, 4, 5});
  v = choose(other > v, other, v);
  return v[1] > v[0] ? v[1] : v[0];
#else
  float most = v[0];
  for (int i = 1; i < LANES; i++) most = v[i] > most ? v[i] : most;
  return most;
#endif
}

INLINE int32_t sum_of_integers(ivec v) {
#if defined(FILLS_AVX512)
  return _mm512_reduce_add_epi32((__m512i)v);
#elif LANES == 8
  v += __builtin_shuffle(v, (ivec){4, 5, 6, 7, 0, 1, 2, 3});
  v += __builtin_shuffle(v, (ivec){2, 3, 0, 1, 6, 7, 4, 5});
  return v[0] + v[1];
#else
  int32_t total = 0;
  for (int i = 0; i < LANES; i++) total += v[i];
  return total;
#endif
}

/* Stores integers of -128 to 127 as bytes. */
INLINE void store_int8(int8_t *p, ivec v) {
#if defined(FILLS_AVX512)
  _mm_storeu_si128((void *)p, _mm512_cvtepi32_epi8((__m512i)v));
#elif defined(FILLS_AVX2)
  const __m128i low = _mm256_castsi256_si128((__m256i)v);
  const __m128i shorts = _mm_packs_epi32(low, _mm256_extracti128_si256((__m256i)v, 1));
  _mm_storel_epi64((void *)p, _mm_packs_epi16(shorts, shorts));
#else
  for (int i = 0; i < LANES; i++) p[i] = (int8_t)v[i];
#endif
}

/* As many int8 as a vector has floats. GCC generates poor code for this conversion. */
INLINE ivec load_int8(const void *p) {
#if defined(FILLS_AVX512)
  return (ivec)_mm512_cvtepi8_epi32(_mm_loadu_si128(p));
#elif defined(FILLS_AVX2)
  return (ivec)_mm256_cvtepi8_epi32(_mm_loadl_epi64(p));
#else
  ivec found;
  for (int i = 0; i < LANES; i++) found[i] = ((const int8_t *)p)[i];
  return found;
#endif
}

/* Keeps a value in a register: a compiler would rather read memory twice. */
INLINE vec held(vec v) {
#if defined(FILLS_AVX512) || defined(FILLS_AVX2)
  __asm__("" : "+v"(v));
#endif
  return v;
}

/* Returns the pointer unchanged, but opaque to the compiler, which must reload what it points to. */
INLINE const void *opaque(const void *p) {
  __asm__("" : "+r"(p));
  return p;
}

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

/* As many bfloat16 as a vector has floats; a bfloat16 is the upper half of a float. GCC generates
 * poor code for the vector conversion, as in load_int8. */
INLINE vec load_bfloat16(const void *p) {
#if defined(FILLS_AVX512)
  return (vec)((ivec)_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)) << 16);
#else
  return (vec)(__builtin_convertvector(*(const memory_halves *)p, ivec) << 16);
#endif
}

/* Rounds floats to bfloat16, to nearest, ties to even; NaN stays NaN. */
INLINE uvec to_bfloat16(vec x) {
  const uvec bits = (uvec)x, odd = (bits >> 16) & 1, number = (uvec)(x == x);
  const uvec rounded = (bits + 0x7fff + odd) >> 16, quiet = (bits >> 16) | 0x40;
  return (rounded & number) | (quiet & ~number);
}

INLINE void store_halves(uint16_t *p, uvec v) {
  *(memory_halves *)p = __builtin_convertvector(v, memory_halves);
}

#define LANE_NUMBER(i, S) (i)
#define UPPER_LANE(i, S) ((i) & (S) ? (i) - (S) + LANES : (i))
#define LOWER_LANE(i, S) ((i) & (S) ? (i) + LANES : (i) + (S))

INLINE void trade_corners(vec v[LANES], const int size, const ivec upper, const ivec lower) {
#pragma GCC unroll 16
  for (int i = 0; i < LANES; i++)
    if (!(i & size)) {
      const vec a = v[i], b = v[i + size];
      v[i] = __builtin_shuffle(a, b, upper);
      v[i + size] = __builtin_shuffle(a, b, lower);
    }
}

/* Transposes a square: swaps single elements across the diagonal, then squares of two by two, and
 * so on. */
INLINE void transpose(vec v[LANES]) {
  trade_corners(v, 1, (ivec){EACH_LANE(UPPER_LANE, 1)}, (ivec){EACH_LANE(LOWER_LANE, 1)});
  trade_corners(v, 2, (ivec){EACH_LANE(UPPER_LANE, 2)}, (ivec){EACH_LANE(LOWER_LANE, 2)});
  trade_corners(v, 4, (ivec){EACH_LANE(UPPER_LANE, 4)}, (ivec){EACH_LANE(LOWER_LANE, 4)});
#if LANES == 16
  trade_corners(v, 8, (ivec){EACH_LANE(UPPER_LANE, 8)}, (ivec){EACH_LANE(LOWER_LANE, 8)});
#endif
}

/* Repeats two adjacent bfloat16 in every element. */
INLINE ivec splat_pair(const uint16_t *p) {
  int32_t pair;
  memcpy(&pair, p, sizeof(pair));
  return pair + (ivec){0};
}

/* Replaces subnormal floats by zeros of the same sign. */
INLINE vec flushed(vec x) {
  const ivec magnitude = (ivec)x & 0x7fffffff;
  return choose(magnitude < 0x00800000, (vec)((ivec)x & INT32_MIN), x);
}

/* sums + weights . activations, whose elements are pairs of bfloat16: what VDPBF16PS computes. It
 * multiplies and adds the upper of each pair, then the lower, rounding each sum once, to nearest,
 * ties to even. Subnormal inputs count as zeros, subnormal sums become zeros. */
#if defined(__AVX512BF16__)
INLINE vec dot_pairs(vec sums, ivec weights, ivec activations) {
  return (vec)_mm512_dpbf16_ps((__m512)sums, (__m512bh)weights, (__m512bh)activations);
}
#else
/* Not inlined: it need not be fast, but must compile fast. */
static __attribute__((noinline, unused)) vec dot_pairs(vec sums, ivec weights, ivec activations) {
  const int32_t upper = (int32_t)0xffff0000;
  vec w = flushed((vec)(weights & upper)), a = flushed((vec)(activations & upper));
  sums = flushed(sums);
  for (int i = 0; i < LANES; i++) sums[i] = __builtin_fmaf(w[i], a[i], sums[i]);
  sums = flushed(sums);
  w = flushed((vec)(weights << 16)), a = flushed((vec)(activations << 16));
  for (int i = 0; i < LANES; i++) sums[i] = __builtin_fmaf(w[i], a[i], sums[i]);
  return flushed(sums);
}
#endif

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

/* to[i] = the sum of v[i]'s elements, added in the same order for all four. */
INLINE void sums_of_four(const vec v[4], float *to) {
#if LANES == 16
  const ivec low = {0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29}, high = low + 2;
  const ivec low_pairs = {0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29};
  const vec a = __builtin_shuffle(v[0], v[1], low) + __builtin_shuffle(v[0], v[1], high);
  const vec b = __builtin_shuffle(v[2], v[3], low) + __builtin_shuffle(v[2], v[3], high);
  vec c = __builtin_shuffle(a, b, low_pairs) + __builtin_shuffle(a, b, low_pairs + 2);
  c += __builtin_shuffle(c, (ivec){8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7});
  c += __builtin_shuffle(c, (ivec){4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11});
  for (int i = 0; i < 4; i++) to[i] = c[i];
#else
  const ivec even = {0, 2, 8, 10, 4, 6, 12, 14}, odd = {1, 3, 9, 11, 5, 7, 13, 15};
  vec a = __builtin_shuffle(v[0], v[1], even) + __builtin_shuffle(v[0], v[1], odd);
  vec b = __builtin_shuffle(v[2], v[3], even) + __builtin_shuffle(v[2], v[3], odd);
  vec c = __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, odd);
  c += __builtin_shuffle(c, (ivec){4, 5, 6, 7, 0, 1, 2, 3});
  for (int i = 0; i < 4; i++) to[i] = c[i];
#endif
}
