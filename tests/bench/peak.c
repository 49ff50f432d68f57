/* peak.c - see peak.h. Each loop is compiled for an instruction set of its own: none may run before kernels_select has
 * checked the processor. */
#include "tests/bench/peak.h"

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#elif defined __aarch64__
#include <arm_neon.h>
#endif

/* As many as the registers hold beside two more. A processor that starts two instructions a cycle and takes up to seven
 * cycles for each needs fourteen; one of arm64, four and five, twenty. */
#ifdef __aarch64__
#define CHAINS 20
#else
#define CHAINS 14
#endif
#define FLOP(multiply_adds) (2.0 * CHAINS * (multiply_adds)) /* of a turn, by those of one instruction */

/* A loop whose chain x[c] is a `register_type`, and becomes `next` in each turn. */
#define LOOP(name, target, register_type, next)                                      \
    target static void name(void *chains, uint64_t turns)                            \
    {                                                                                \
        register_type x[CHAINS];                                                     \
        _Static_assert(sizeof x <= PEAK_CHAINS_BYTES, "all chains must have room");  \
        memcpy(x, chains, sizeof x);                                                 \
        for (uint64_t i = 0; i < turns; i++)                                         \
            _Pragma("GCC unroll 20") for (int c = 0; c < CHAINS; c++) x[c] = (next); \
        memcpy(chains, x, sizeof x);                                                 \
    }
#define FOR(isa) __attribute__((target(isa)))

/* In fp32 each chain converges to ADD / (1 - BY): neither infinite nor denormal, however long. Sums of bf16 grow until
 * a term is too small for them, and those of int8 wrap. */
#define BY (-0.99993f)
#define ADD 1.00017f
#define PAIR 0x3ebdbed2 /* 0.37 and -0.41 in bf16 */
#define BYTES 0x3b15250d

#ifdef __x86_64__
LOOP(fp32, , __m128, _mm_add_ps(_mm_mul_ps(x[c], _mm_set1_ps(BY)), _mm_set1_ps(ADD)))
LOOP(fp32_avx2, FOR("avx2,fma"), __m256, _mm256_fmadd_ps(x[c], _mm256_set1_ps(BY), _mm256_set1_ps(ADD)))
LOOP(fp32_avx512, FOR("avx512f"), __m512, _mm512_fmadd_ps(x[c], _mm512_set1_ps(BY), _mm512_set1_ps(ADD)))
LOOP(bf16_avx512, FOR("avx512f,avx512bf16"), __m512,
     _mm512_dpbf16_ps(x[c], (__m512bh)_mm512_set1_epi32(PAIR), (__m512bh)_mm512_set1_epi32(PAIR)))
/* Three instructions for a quad of bytes, as in engine/kernels/avx2_int8.c. */
typedef int32_t eight __attribute__((vector_size(32)));
LOOP(int8_avx2, FOR("avx2"), eight,
     BYTES +
         (eight)_mm256_madd_epi16(_mm256_maddubs_epi16((__m256i)x[c], _mm256_set1_epi32(BYTES)), _mm256_set1_epi16(1)))
LOOP(int8_avxvnni, FOR("avx2,avxvnni"), __m256i,
     _mm256_dpbusd_avx_epi32(x[c], _mm256_set1_epi32(BYTES), _mm256_set1_epi32(BYTES)))
LOOP(int8_vnni, FOR("avx512f,avx512vnni"), __m512i,
     _mm512_dpbusd_epi32(x[c], _mm512_set1_epi32(BYTES), _mm512_set1_epi32(BYTES)))

struct tiles {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
/* Four tiles of 16 rows by 16 columns, 16 steps at a time. The shapes that the engine has set are set again at the
 * end. */
#define TILES(name, multiply, what)                                                  \
    FOR("amx-tile,amx-int8,amx-bf16") static void name(void *chains, uint64_t turns) \
    {                                                                                \
        const int32_t same[16] = {FOUR(what), FOUR(what), FOUR(what), FOUR(what)};   \
        struct tiles before, now = {.palette = 1};                                   \
        for (int i = 0; i < 6; i++) {                                                \
            now.rows[i] = 16;                                                        \
            now.row_bytes[i] = 64;                                                   \
        }                                                                            \
        _tile_storeconfig(&before);                                                  \
        _tile_loadconfig(&now);                                                      \
        EACH_TILE(_tile_loadd, chains)                                               \
        _tile_loadd(4, same, 0);                                                     \
        _tile_loadd(5, same, 0);                                                     \
        for (uint64_t i = 0; i < turns; i++) {                                       \
            multiply(0, 4, 5);                                                       \
            multiply(1, 4, 5);                                                       \
            multiply(2, 4, 5);                                                       \
            multiply(3, 4, 5);                                                       \
        }                                                                            \
        EACH_TILE(_tile_stored, chains)                                              \
        _tile_loadconfig(&before);                                                   \
    }
#define FOUR(x) x, x, x, x
#define EACH_TILE(move, chains)           \
    move(0, (char *)(chains), 64);        \
    move(1, (char *)(chains) + 1024, 64); \
    move(2, (char *)(chains) + 2048, 64); \
    move(3, (char *)(chains) + 3072, 64);
#define TILES_FLOP(steps) (2.0 * 4 * 16 * 16 * (steps))
TILES(bf16_amx, _tile_dpbf16ps, PAIR)
TILES(int8_amx, _tile_dpbusd, BYTES)

#define FP32_AVX512           \
    {                         \
        fp32_avx512, FLOP(16) \
    }
static const struct peak peaks[] = {
    {"baseline", {{fp32, FLOP(4)}, {fp32, FLOP(4)}, {fp32, FLOP(4)}}},
    {"avx2", {{fp32_avx2, FLOP(8)}, {fp32_avx2, FLOP(8)}, {int8_avx2, FLOP(32)}}},
    {"avxvnni", {{fp32_avx2, FLOP(8)}, {fp32_avx2, FLOP(8)}, {int8_avxvnni, FLOP(32)}}},
    {"avx512", {FP32_AVX512, FP32_AVX512, FP32_AVX512}},
    {"avx512vnni", {FP32_AVX512, FP32_AVX512, {int8_vnni, FLOP(64)}}},
    {"avx512bf16", {FP32_AVX512, {bf16_avx512, FLOP(32)}, {int8_vnni, FLOP(64)}}},
    {"amx", {FP32_AVX512, {bf16_amx, TILES_FLOP(32)}, {int8_amx, TILES_FLOP(64)}}},
};
#elif defined __aarch64__
LOOP(fp32, , float32x4_t, vfmaq_f32(vdupq_n_f32(ADD), x[c], vdupq_n_f32(BY)))
LOOP(bf16, FOR("arch=armv8.2-a+bf16"), float32x4_t,
     vbfdotq_f32(x[c], vreinterpretq_bf16_u32(vdupq_n_u32(PAIR)), vreinterpretq_bf16_u32(vdupq_n_u32(PAIR))))
LOOP(int8, FOR("arch=armv8.2-a+dotprod"), int32x4_t,
     vdotq_s32(x[c], vreinterpretq_s8_s32(vdupq_n_s32(BYTES)), vreinterpretq_s8_s32(vdupq_n_s32(BYTES))))

#define FP32          \
    {                 \
        fp32, FLOP(4) \
    }
static const struct peak peaks[] = {
    {"baseline", {FP32, FP32, FP32}},
    {"neon", {FP32, FP32, FP32}},
    {"neondotprod", {FP32, FP32, {int8, FLOP(16)}}},
    {"neonbf16", {FP32, {bf16, FLOP(8)}, {int8, FLOP(16)}}},
};
#else
typedef float four __attribute__((vector_size(16)));
LOOP(fp32, , four, x[c] * BY + ADD)
#define FP32          \
    {                 \
        fp32, FLOP(4) \
    }
static const struct peak peaks[] = {{"baseline", {FP32, FP32, FP32}}};
#endif

const struct peak *peak_select(const char *isa)
{
    const struct kernels *k = kernels_select(isa); /* which checks the processor */
    for (size_t i = 0; k != NULL && i < sizeof peaks / sizeof peaks[0]; i++)
        if (strcmp(peaks[i].isa, k->isa) == 0)
            return &peaks[i];
    return NULL;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

typedef uint32_t words __attribute__((vector_size(16))); /* of which a core of any kind loads more than memory gives */
#define READERS 8
_Static_assert(PEAK_READ_BYTES % (READERS * sizeof(words)) == 0, "the reading loop has no tail");

uint32_t peak_read(const void *memory, size_t bytes)
{
    words x[READERS] = {{0}};
    for (const char *at = memory, *end = at + bytes; at < end; at += sizeof x)
#pragma GCC unroll 8
        for (size_t r = 0; r < READERS; r++)
            x[r] ^= *(const words *)(const void *)(at + r * sizeof x[r]);
    for (size_t r = 1; r < READERS; r++)
        x[0] ^= x[r];
    return x[0][0] ^ x[0][1] ^ x[0][2] ^ x[0][3];
}
