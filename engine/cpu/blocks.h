/* Packs a matrix from the blocks of a GGUF file into panels of few bits (integers.h).
 *
 * Each thread reads the rows of some panels into a buffer that stays in its L2 cache, takes block
 * after block apart, and puts the codes where the panel has them. So each weight is read once, from
 * the system's cache of the file, and written once, to where it stays.
 *
 * The layouts are those of ggml (ggml-common.h), as in engine/gguf/blocks.py.
 */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "rows.h"

/* Numbered as in GGUF. Q4_1 and MXFP4 are missing: how they are packed depends on their values. */
enum { Q4_0 = 2, Q5_0 = 6, Q5_1, Q8_0, Q2_K = 10, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL = 20, IQ4_XS = 23 };

/* float16 numbers are uint16_t. A `fine` scale or minimum is what the block's own is multiplied by,
 * six bits for K types. Names end in `low` and `high` where numbers are stored in two parts. */
typedef struct { uint16_t scale; uint8_t codes[16]; } block_q4;
typedef struct { uint16_t scale; uint8_t high[4], low[16]; } block_q5_0;
typedef struct { uint16_t scale, minimum; uint8_t high[4], low[16]; } block_q5_1;
typedef struct { uint16_t scale; int8_t codes[32]; } block_q8_0;
typedef struct { uint8_t fine[16], codes[64]; uint16_t scale, minimum; } block_q2_k;
typedef struct { uint8_t high[32], low[64], fine[12]; uint16_t scale; } block_q3_k;
typedef struct { uint16_t scale, minimum; uint8_t fine[12], codes[128]; } block_q4_k;
typedef struct { uint16_t scale, minimum; uint8_t fine[12], high[32], low[128]; } block_q5_k;
typedef struct { uint8_t low[128], high[64]; int8_t fine[16]; uint16_t scale; } block_q6_k;
typedef struct { uint16_t scale, fine_high; uint8_t fine_low[4], codes[128]; } block_iq4_xs;

#define SUPER_INPUTS (SUPER * GROUP_INPUTS) /* of a K type's block */

INLINE int is_wide(int type) { return type >= Q2_K && type != IQ4_NL; }

INLINE int64_t block_bytes(int type) {
  switch (type) {
  case Q4_0: case IQ4_NL: return sizeof(block_q4);
  case Q5_0: return sizeof(block_q5_0);
  case Q5_1: return sizeof(block_q5_1);
  case Q8_0: return sizeof(block_q8_0);
  case Q2_K: return sizeof(block_q2_k);
  case Q3_K: return sizeof(block_q3_k);
  case Q4_K: return sizeof(block_q4_k);
  case Q5_K: return sizeof(block_q5_k);
  case Q6_K: return sizeof(block_q6_k);
  default: return sizeof(block_iq4_xs);
  }
}

/* The bytes of `groups` groups of a row, which fill whole blocks. */
INLINE int64_t stored_bytes(int type, int groups) {
  return (is_wide(type) ? groups / SUPER : groups) * block_bytes(type);
}

/* Up to SUPER groups of a row, of which the weights are
 *   scale fine code - minimum fine_minimum,
 * with one scale and minimum (float16) for each group, and two of the fine ones: for its first half
 * and its second. */
typedef struct {
  int8_t codes[SUPER_INPUTS];
  uint16_t scale[SUPER], minimum[SUPER];
  int8_t fine[2][SUPER], fine_minimum[2][SUPER];
} decoded;

typedef uint8_t byte_vec __attribute__((vector_size(32)));
typedef uint8_t half_byte_vec __attribute__((vector_size(16)));
typedef int32_t int_vec __attribute__((vector_size(32)));
typedef uint64_t long_vec __attribute__((vector_size(32)));
typedef byte_vec memory_byte_vec __attribute__((aligned(1), may_alias));
typedef half_byte_vec memory_half_byte_vec __attribute__((aligned(1), may_alias));

INLINE byte_vec bytes32(const void *p) { return *(const memory_byte_vec *)p; }
INLINE void put_bytes32(void *p, byte_vec v) { *(memory_byte_vec *)p = v; }

/* --- decoding -------------------------------------------------------------------------------- */

/* 16 bytes: their low halves, then their high halves. */
INLINE byte_vec halves(const void *p) {
  const half_byte_vec both = *(const memory_half_byte_vec *)p;
  const half_byte_vec low = both & 15, high = both >> 4;
  byte_vec found;
  memcpy(&found, &low, sizeof(low));
  memcpy((char *)&found + sizeof(low), &high, sizeof(high));
  return found;
}

/* 16 or 0 for each bit of four bytes. */
INLINE byte_vec fifth_bits(const uint8_t *p) {
  int32_t bits;
  memcpy(&bits, p, sizeof(bits));
  const byte_vec place = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
                          18, 18, 18, 18, 18, 18, 18, 18, 19, 19, 19, 19, 19, 19, 19, 19};
  const byte_vec found = __builtin_shuffle((byte_vec)(bits + (int_vec){0}), place);
  const byte_vec bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128,
                        1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  return (byte_vec)((found & bit) != 0) & 16;
}

/* The levels of bytes below 16. */
INLINE byte_vec iq4_levels(byte_vec codes) {
  static const int8_t levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};
#if defined(__AVX2__)
  const __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)levels));
  return (byte_vec)_mm256_shuffle_epi8(both, (__m256i)codes);
#else
  for (int i = 0; i < 32; i++) codes[i] = (uint8_t)levels[codes[i]];
  return codes;
#endif
}

/* Of a type that has a block for each group. */
INLINE void decode_narrow(const int type, const char *blocks, int groups, decoded *to) {
  memset(to->fine, 1, sizeof(to->fine));
  /* A stored minimum is added. */
  memset(to->fine_minimum, type == Q5_1 ? -1 : 0, sizeof(to->fine_minimum));
  for (int g = 0; g < groups; g++, blocks += block_bytes(type)) {
    const block_q5_0 *five = (const void *)blocks;
    const block_q5_1 *five_1 = (const void *)blocks;
    const block_q4 *four = (const void *)blocks;
    byte_vec codes;
    to->scale[g] = four->scale;
    to->minimum[g] = type == Q5_1 ? five_1->minimum : 0;
    if (type == Q4_0) codes = halves(four->codes) - 8;
    else if (type == IQ4_NL) codes = iq4_levels(halves(four->codes));
    else if (type == Q5_0) codes = (halves(five->low) | fifth_bits(five->high)) - 16;
    else if (type == Q5_1) codes = halves(five_1->low) | fifth_bits(five_1->high);
    else codes = bytes32(((const block_q8_0 *)blocks)->codes);
    put_bytes32(to->codes + g * GROUP_INPUTS, codes);
  }
}

INLINE void set_common(decoded *to, uint16_t scale, uint16_t minimum) {
  for (int g = 0; g < SUPER; g++) to->scale[g] = scale, to->minimum[g] = minimum;
  memset(to->fine_minimum, 0, sizeof(to->fine_minimum));
}

/* Sixteen numbers, two for each group. */
INLINE void set_fine(const int8_t *from, int8_t (*to)[SUPER]) {
  for (int g = 0; g < SUPER; g++) to[0][g] = from[2 * g], to[1][g] = from[2 * g + 1];
}

/* Eight scales and eight minimums of six bits: the last four of each have two bits above the first
 * ones. Four bytes are one integer here. */
INLINE void decode_sixes(const uint8_t *from, decoded *to) {
  const uint32_t four = 0x0f0f0f0f, six = 0x3f3f3f3f, top = 0x30303030;
  uint32_t parts[3];
  memcpy(parts, from, sizeof(parts));
  const uint32_t fine[2] = {parts[0] & six, (parts[2] & four) | (parts[0] >> 2 & top)};
  const uint32_t least[2] = {parts[1] & six, (parts[2] >> 4 & four) | (parts[1] >> 2 & top)};
  for (int half = 0; half < 2; half++) {
    memcpy(to->fine[half], fine, SUPER);
    memcpy(to->fine_minimum[half], least, SUPER);
  }
}

INLINE void decode_q2_k(const block_q2_k *b, decoded *to) {
  int8_t fine[16], least[16];
  for (int i = 0; i < 16; i++) fine[i] = b->fine[i] & 15, least[i] = (int8_t)(b->fine[i] >> 4);
  set_common(to, b->scale, b->minimum);
  set_fine(fine, to->fine);
  set_fine(least, to->fine_minimum);
#pragma GCC unroll 8
  for (int i = 0; i < SUPER; i++)
    put_bytes32(to->codes + 32 * i, bytes32(b->codes + i / 4 * 32) >> i % 4 * 2 & 3);
}

INLINE void decode_q3_k(const block_q3_k *b, decoded *to) {
  int8_t fine[16];
  for (int i = 0; i < 16; i++) {
    const int low = b->fine[i % 8] >> i / 8 * 4 & 15, high = b->fine[8 + i % 4] >> i / 4 * 2 & 3;
    fine[i] = (int8_t)((low | high << 4) - 32);
  }
  set_common(to, b->scale, 0);
  set_fine(fine, to->fine);
#pragma GCC unroll 8
  for (int i = 0; i < SUPER; i++) { /* a high bit that is not set means 4 less */
    const byte_vec high = bytes32(b->high) >> i & 1, low = bytes32(b->low + i / 4 * 32) >> i % 4 * 2;
    put_bytes32(to->codes + 32 * i, ((low & 3) | high << 2) - 4);
  }
}

INLINE void decode_q4_k(const block_q4_k *b, decoded *to) {
  set_common(to, b->scale, b->minimum);
  decode_sixes(b->fine, to);
#pragma GCC unroll 8
  for (int i = 0; i < SUPER; i++)
    put_bytes32(to->codes + 32 * i, bytes32(b->codes + i / 2 * 32) >> i % 2 * 4 & 15);
}

INLINE void decode_q5_k(const block_q5_k *b, decoded *to) {
  set_common(to, b->scale, b->minimum);
  decode_sixes(b->fine, to);
#pragma GCC unroll 8
  for (int i = 0; i < SUPER; i++) {
    const byte_vec high = bytes32(b->high) >> i & 1, low = bytes32(b->low + i / 2 * 32) >> i % 2 * 4;
    put_bytes32(to->codes + 32 * i, (low & 15) | high << 4);
  }
}

INLINE void decode_q6_k(const block_q6_k *b, decoded *to) {
  set_common(to, b->scale, 0);
  set_fine(b->fine, to->fine);
#pragma GCC unroll 8
  for (int i = 0; i < SUPER; i++) { /* runs of 128, of which 64 are in the low halves */
    const byte_vec low = bytes32(b->low + i / 4 * 64 + i % 2 * 32) >> i % 4 / 2 * 4;
    const byte_vec high = bytes32(b->high + i / 4 * 32) >> i % 4 * 2;
    put_bytes32(to->codes + 32 * i, ((low & 15) | (high & 3) << 4) - 32);
  }
}

INLINE void decode_iq4_xs(const block_iq4_xs *b, decoded *to) {
  set_common(to, b->scale, 0);
  for (int g = 0; g < SUPER; g++) {
    const int low = b->fine_low[g / 2] >> g % 2 * 4 & 15, high = b->fine_high >> 2 * g & 3;
    to->fine[0][g] = to->fine[1][g] = (int8_t)((low | high << 4) - 32);
    put_bytes32(to->codes + 32 * g, iq4_levels(halves(b->codes + 16 * g)));
  }
}

/* `groups` groups from the blocks that begin there; SUPER of them for a type with wide blocks. */
static void decode(int type, const char *blocks, int groups, decoded *to) {
  switch (type) {
  case Q4_0: decode_narrow(Q4_0, blocks, groups, to); break;
  case Q5_0: decode_narrow(Q5_0, blocks, groups, to); break;
  case Q5_1: decode_narrow(Q5_1, blocks, groups, to); break;
  case Q8_0: decode_narrow(Q8_0, blocks, groups, to); break;
  case IQ4_NL: decode_narrow(IQ4_NL, blocks, groups, to); break;
  case Q2_K: decode_q2_k((const void *)blocks, to); break;
  case Q3_K: decode_q3_k((const void *)blocks, to); break;
  case Q4_K: decode_q4_k((const void *)blocks, to); break;
  case Q5_K: decode_q5_k((const void *)blocks, to); break;
  case Q6_K: decode_q6_k((const void *)blocks, to); break;
  default: decode_iq4_xs((const void *)blocks, to);
  }
}

/* --- into a panel ---------------------------------------------------------------------------- */

/* Packs codes of 4 bits in place, those of eight inputs in an integer; -8 to 7 become 0 to 15. */
INLINE void pack_nibbles(const int kind, int8_t *codes) {
  for (int i = 0; i < SUPER_INPUTS; i += 64) {
    int_vec parts[2];
    for (int half = 0; half < 2; half++) {
      byte_vec bytes = bytes32(codes + i + 32 * half);
      if (kind == NIBBLES) bytes = (bytes + 8) & 15;
      parts[half] = (int_vec)((long_vec)bytes | (long_vec)bytes >> 28); /* the low halves count */
    }
    const int_vec low = {0, 2, 4, 6, 8, 10, 12, 14};
    put_bytes32(codes + i / 2, (byte_vec)__builtin_shuffle(parts[0], parts[1], low));
  }
}

/* The codes of LANES outputs from `at` on. */
INLINE void place_codes(const int kind, decoded *from, int groups, char *panel, int first, int at) {
  const int each = is_nibbles(kind) ? STEPS / 2 : STEPS; /* integers of a group */
  if (is_nibbles(kind))
    for (int r = 0; r < LANES; r++) pack_nibbles(kind, from[r].codes);
  for (int i = 0; i < groups * each; i += LANES) {
    vec square[LANES];
    for (int r = 0; r < LANES; r++) square[r] = (vec)load_bytes(from[r].codes + 4 * i);
    transpose(square);
    for (int j = 0; j < LANES && i + j < groups * each; j++) {
      char *group = panel + group_begin(kind, first + (i + j) / each) + scales_bytes(kind);
      store((float *)(group + 4 * ((i + j) % each * PANEL + at)), square[j]);
    }
  }
}

/* Output `at`. */
INLINE void place_scales(const int kind, const decoded *from, int groups, char *panel, int first,
                         int at) {
  char *header = panel + group_begin(kind, first) - header_bytes(kind);
  if (header_bytes(kind)) memcpy(header + 2 * at, &from->scale[0], 2);
  if (kind == NIBBLES_K) memcpy(header + 2 * (PANEL + at), &from->minimum[0], 2);
  for (int g = 0; g < groups; g++) {
    char *to = panel + group_begin(kind, first + g);
    if (kind == NIBBLES || kind == BYTES) memcpy(to + 2 * at, &from->scale[g], 2);
    if (kind == NIBBLES_K) {
      to[at] = from->fine[0][g];
      to[PANEL + at] = from->fine_minimum[0][g];
    }
    for (int half = 0; half < 2; half++) {
      if (kind == BYTES_K) to[PANEL * half + at] = from->fine[half][g];
      if (kind != BYTES_FLOAT) continue;
      const float scale = one_float16(&from->scale[g]) * from->fine[half][g];
      const float minimum = one_float16(&from->minimum[g]) * from->fine_minimum[half][g];
      memcpy(to + 4 * (PANEL * half + at), &scale, sizeof(scale));
      memcpy(to + 4 * (PANEL * (2 + half) + at), &minimum, sizeof(minimum));
    }
  }
}

/* rows[PANEL]: where each output's blocks begin; NULL: it is zeros. */
INLINE void fill_panel(const int kind, int inputs, const char *const *rows, const int32_t *types,
                       char *panel) {
  const int all = groups_of(inputs);
  decoded each[LANES];
  for (int first = 0; first < all; first += SUPER) {
    const int groups = all - first < SUPER ? all - first : SUPER;
    for (int at = 0; at < PANEL; at += LANES) {
      for (int r = 0; r < LANES; r++) {
        const char *row = rows[at + r];
        if (!row) memset(&each[r], 0, sizeof(decoded));
        if (row)
          decode(types[at + r], row + stored_bytes(types[at + r], first), groups, &each[r]);
        else if (kind == NIBBLES) /* whose bytes are zeros, like those of outputs beyond the last */
          memset(each[r].codes, -8, sizeof(each[r].codes));
        place_scales(kind, &each[r], groups, panel, first, at + r);
      }
      place_codes(kind, each, groups, panel, first, at);
    }
  }
}

/* --- from a file ----------------------------------------------------------------------------- */

#define READ_BYTES (128 << 10) /* about as many are read at a time: a part of the L2 cache */
#define AHEAD_BYTES (16 << 20) /* how far ahead of packing the system is asked to read */

/* `begins`: of each output's row in its file; 0: it is zeros. `files`: their descriptors. A thread
 * that fails sets `failed` once to an errno, or to -1 where a file ends, and says in which and where.
 */
typedef struct {
  const linear *to;
  const int64_t *begins;
  const int32_t *types, *files;
  int64_t row_bytes; /* of the longest row */
  atomic_int failed;
  int64_t failed_file, failed_at;
} packing;

/* Rows of adjacent outputs that are adjacent in a file, too. */
typedef struct {
  int64_t begin, end;
  int first, file;
} run;

static int read_span(packing *p, char *to, int file, int64_t begin, int64_t end) {
  while (begin < end) {
    const ssize_t count = pread(file, to, (size_t)(end - begin), begin);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      int none = 0;
      const int why = count < 0 ? errno : -1;
      if (atomic_compare_exchange_strong(&p->failed, &none, why))
        p->failed_file = file, p->failed_at = begin;
      return 0;
    }
    to += count;
    begin += count;
  }
  return 1;
}

/* Rows are mostly used in the order of the file. */
static void ask_ahead(int file, int64_t begin, int64_t end) {
#if defined(POSIX_FADV_WILLNEED)
  posix_fadvise(file, begin + AHEAD_BYTES, end - begin, POSIX_FADV_WILLNEED);
#else
  (void)file, (void)begin, (void)end;
#endif
}

static int earlier(const void *a, const void *b) {
  const run *left = a, *right = b;
  if (left->file != right->file) return left->file < right->file ? -1 : 1;
  return (left->begin > right->begin) - (left->begin < right->begin);
}

/* Reads the rows of `count` outputs from `first` on into `buffer`, and sets rows[count]; `runs` has
 * room for as many. Outputs may be in any order: what is adjacent in a file is read at once. False
 * if that fails. */
static int read_rows(packing *p, int first, int count, run *runs, const char **rows, char *buffer) {
  const int groups = groups_of(p->to->inputs);
  const int64_t *begins = p->begins + first;
  const int32_t *types = p->types + first, *files = p->files + first;
  int found = 0;
  for (int i = 0; i < count; i++) {
    rows[i] = NULL;
    if (!begins[i]) continue;
    if (!i || !begins[i - 1] || files[i - 1] != files[i] || runs[found - 1].end != begins[i])
      runs[found++] = (run){begins[i], begins[i], i, files[i]};
    runs[found - 1].end += stored_bytes(types[i], groups);
  }
  qsort(runs, found, sizeof(run), earlier);
  for (int next = 0; next < found;) {
    const run *span = runs + next;
    int64_t end = span->begin;
    for (; next < found && runs[next].file == span->file && runs[next].begin == end; next++) {
      const char *at = buffer + (end - span->begin);
      end = runs[next].end;
      for (int i = runs[next].first; at < buffer + (end - span->begin); i++) {
        rows[i] = at;
        at += stored_bytes(types[i], groups);
      }
    }
    ask_ahead(span->file, span->begin, end);
    if (!read_span(p, buffer, span->file, span->begin, end)) return 0;
    buffer += end - span->begin;
  }
  return 1;
}

static void fill_panels(const packing *p, int panel, int last, const char *const *rows) {
  const linear *l = p->to;
  const int32_t *types = p->types + panel * PANEL;
  for (; panel < last; panel++, rows += PANEL, types += PANEL) {
    char *to = (char *)l->weight + panel * panel_bytes(l);
    switch (l->kind) {
    case NIBBLES: fill_panel(NIBBLES, l->inputs, rows, types, to); break;
    case NIBBLES_K: fill_panel(NIBBLES_K, l->inputs, rows, types, to); break;
    case BYTES: fill_panel(BYTES, l->inputs, rows, types, to); break;
    case BYTES_K: fill_panel(BYTES_K, l->inputs, rows, types, to); break;
    default: fill_panel(BYTES_FLOAT, l->inputs, rows, types, to);
    }
  }
}

/* Packs the panels that this thread claims. */
static void pack_panels(const void *task, team *t, int thread) {
  (void)thread;
  packing *p = *(packing *const *)task;
  const linear *l = p->to;
  const int panels = panels_of(l);
  const int64_t most = p->row_bytes;
  int step = 1; /* panels; a power of two, so that permuted rows of a head are read at once */
  while (2 * step * PANEL * most <= READ_BYTES) step *= 2;
  const int count = step * PANEL < l->outputs ? step * PANEL : panels * PANEL;
  char *room = own_room(count * ((int64_t)sizeof(run) + sizeof(char *) + most));
  run *runs = (run *)room;
  const char **rows = (const char **)(runs + count);
  char *buffer = (char *)(rows + count);
  int first, last;
  while (claim(t, panels, step, 8 * step, &first, &last))
    for (; first < last; first += step) {
      const int end = first + step < last ? first + step : last;
      const int outputs = (end * PANEL < l->outputs ? end * PANEL : l->outputs) - first * PANEL;
      memset(rows, 0, sizeof(char *) * count);
      if (atomic_load(&p->failed) || !read_rows(p, first * PANEL, outputs, runs, rows, buffer)) break;
      fill_panels(p, first, end, rows);
    }
}

/* Fills l->weight, which is zeros. Returns 0, or what `packing` calls failed; then failed_at[2] are
 * the file and the byte. */
static int pack_blocks(team *t, const linear *l, const int32_t *files, const int64_t *begins,
                       const int32_t *types, int64_t *failed_at) {
  packing p = {.to = l, .begins = begins, .types = types, .files = files};
  packing *const task = &p;
  for (int i = 0; i < l->outputs; i++) {
    const int64_t bytes = begins[i] ? stored_bytes(types[i], groups_of(l->inputs)) : 0;
    if (bytes > p.row_bytes) p.row_bytes = bytes;
  }
  if (!p.row_bytes) return 0; /* all rows are zeros */
  together(t, pack_panels, &task);
  failed_at[0] = p.failed_file, failed_at[1] = p.failed_at;
  return atomic_load(&p.failed);
}
