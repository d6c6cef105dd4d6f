/* Tiles of AMX: registers of up to 16 rows of 64 bytes, and products of two of them, each one
 * instruction (Intel, "Architecture Instruction Set Extensions Programming Reference", chapter 3).
 * A test build computes the same in software. */
#pragma once
#include <stdint.h>
#include <string.h>

#include "vectors.h"

#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AMX_INT8__)
#define HAS_TILES 1
#elif defined(EMULATED_TILES)
#define HAS_TILES 1
#else
#define HAS_TILES 0
#endif

#define TILE_HEIGHT 16 /* rows */
#define TILE_BYTES 64  /* in a row */
#define TILES 8

#if HAS_TILES
/* The sizes of all tiles, as LDTILECFG reads them. */
typedef struct {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_sizes;

_Static_assert(sizeof(tile_sizes) == 64, "what LDTILECFG reads");

/* Tiles 0 to 3 are sums and 4 and 5 are inputs, of `height` rows. 6 and 7 are weights, of `depth`
 * rows with 4 bytes for each output. A row of inputs has 4 bytes for each row of weights. */
INLINE tile_sizes sizes_of_tiles(int height, int depth) {
  tile_sizes sizes = {.palette = 1};
  for (int n = 0; n < TILES; n++) {
    sizes.rows[n] = n < 6 ? height : depth;
    sizes.row_bytes[n] = n == 4 || n == 5 ? 4 * depth : TILE_BYTES;
  }
  return sizes;
}

#if defined(__AMX_TILE__)
/* Not the intrinsics for what reads memory: GCC 12's do not declare what they read, so the compiler
 * may drop or delay what was stored there before. */
#define TILE_CONFIGURE(sizes) __asm__ volatile("ldtilecfg %0" : : "m"(sizes))
#define TILE_LOAD(n, from, stride) \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #n : : "r"(from), "r"((int64_t)(stride)) : "memory")
#define TILE_STORE(n, to, stride) _tile_stored(n, to, stride)
#define TILE_ZERO(n) _tile_zero(n)
#define TILE_ADD_PAIRS(sums, inputs, weights) _tile_dpbf16ps(sums, inputs, weights)
#define TILE_ADD_BYTES(sums, inputs, weights) _tile_dpbssd(sums, inputs, weights)
/* So that a context switch need not save 8 KiB. */
#define TILE_RELEASE() _tile_release()
#else
static _Thread_local struct {
  tile_sizes sizes;
  uint8_t bytes[TILES][TILE_HEIGHT][TILE_BYTES];
} emulated;

#define TILE_CONFIGURE(wanted) (emulated.sizes = (wanted))
#define TILE_LOAD(n, from, stride) emulated_load(n, from, stride)
#define TILE_STORE(n, to, stride) emulated_store(n, to, stride)
#define TILE_ZERO(n) memset(emulated.bytes[n], 0, sizeof(emulated.bytes[n]))
#define TILE_ADD_PAIRS(sums, inputs, weights) emulated_pairs(sums, inputs, weights)
#define TILE_ADD_BYTES(sums, inputs, weights) emulated_bytes(sums, inputs, weights)
#define TILE_RELEASE() memset(&emulated.sizes, 0, sizeof(emulated.sizes))

static void emulated_load(int n, const void *from, int64_t stride) {
  memset(emulated.bytes[n], 0, sizeof(emulated.bytes[n]));
  for (int r = 0; r < emulated.sizes.rows[n]; r++)
    memcpy(emulated.bytes[n][r], (const char *)from + r * stride, emulated.sizes.row_bytes[n]);
}

static void emulated_store(int n, void *to, int64_t stride) {
  for (int r = 0; r < emulated.sizes.rows[n]; r++)
    memcpy((char *)to + r * stride, emulated.bytes[n][r], emulated.sizes.row_bytes[n]);
}

/* The even and the odd inputs have a sum each; both sums are added to the tile's at the end. */
static __attribute__((noinline)) void emulated_pairs(int sums, int inputs, int weights) {
  for (int r = 0; r < emulated.sizes.rows[sums]; r++) {
    ivec pairs[TILE_HEIGHT], own[TILE_HEIGHT];
    vec even = {0}, odd = {0}, total;
    for (int k = 0; k < emulated.sizes.rows[weights]; k++) {
      memcpy(&pairs[k], emulated.bytes[weights][k], TILE_BYTES);
      own[k] = splat_pair((const uint16_t *)emulated.bytes[inputs][r] + 2 * k);
      for (int half = 0; half < 2; half++) {
        const vec w = flushed(half ? (vec)(pairs[k] & (int32_t)0xffff0000) : (vec)(pairs[k] << 16));
        const vec x = flushed(half ? (vec)(own[k] & (int32_t)0xffff0000) : (vec)(own[k] << 16));
        vec *to = half ? &odd : &even;
        for (int i = 0; i < LANES; i++) (*to)[i] = __builtin_fmaf(w[i], x[i], (*to)[i]);
        *to = flushed(*to);
      }
    }
    memcpy(&total, emulated.bytes[sums][r], TILE_BYTES);
    total = flushed(flushed(total) + flushed(even + odd));
    memcpy(emulated.bytes[sums][r], &total, TILE_BYTES);
  }
}

static __attribute__((noinline)) void emulated_bytes(int sums, int inputs, int weights) {
  for (int r = 0; r < emulated.sizes.rows[sums]; r++) {
    int32_t total[TILE_BYTES / 4];
    memcpy(total, emulated.bytes[sums][r], TILE_BYTES);
    for (int i = 0; i < 4 * emulated.sizes.rows[weights]; i++)
      for (int o = 0; o < TILE_BYTES / 4; o++)
        total[o] += (int8_t)emulated.bytes[inputs][r][i] *
                    (int8_t)emulated.bytes[weights][i / 4][4 * o + i % 4];
    memcpy(emulated.bytes[sums][r], total, TILE_BYTES);
  }
}
#endif
#endif
