// Sixteen values at once in an AVX-512 register; products by VNNI.
#pragma once
#include <immintrin.h>

#include <cstring>

#include "kernels.h"

#define LANE_INLINE static inline __attribute__((always_inline))

namespace {
using lanehost::Half;

constexpr int kRowBlock = 8;
constexpr int kRowsInRegisters = kRowBlock;
constexpr int kQueryBlock = 6;
constexpr int kVectors = 4;
constexpr int kFetchBytes = 256;

struct Floats {
    __m512 all;
};
struct Ints {
    __m512i all;
};

LANE_INLINE void keep_order() {}
LANE_INLINE void keep_in_memory(void*) {}
LANE_INLINE Floats load(const float* from) { return {_mm512_loadu_ps(from)}; }
LANE_INLINE void store(float* to, Floats a) { _mm512_storeu_ps(to, a.all); }
LANE_INLINE Floats broadcast(float value) { return {_mm512_set1_ps(value)}; }
LANE_INLINE Floats zero() { return {_mm512_setzero_ps()}; }
LANE_INLINE Floats add(Floats a, Floats b) { return {_mm512_add_ps(a.all, b.all)}; }
LANE_INLINE Floats subtract(Floats a, Floats b) { return {_mm512_sub_ps(a.all, b.all)}; }
LANE_INLINE Floats multiply(Floats a, Floats b) { return {_mm512_mul_ps(a.all, b.all)}; }
LANE_INLINE Floats divide(Floats a, Floats b) { return {_mm512_div_ps(a.all, b.all)}; }
LANE_INLINE Floats greater_of(Floats a, Floats b) { return {_mm512_max_ps(a.all, b.all)}; }
LANE_INLINE Floats lesser_of(Floats a, Floats b) { return {_mm512_min_ps(a.all, b.all)}; }
LANE_INLINE Floats negate(Floats a) {
    return {_mm512_xor_ps(a.all, _mm512_set1_ps(-0.0f))};
}
LANE_INLINE Floats choose(int first, int last, Floats a, Floats b) {
    first = first < 0 ? 0 : first > 16 ? 16 : first;
    last = last < 0 ? 0 : last > 16 ? 16 : last;
    const uint32_t mask = ((1u << last) - 1) & ~((1u << first) - 1);
    return {_mm512_mask_blend_ps(__mmask16(mask), b.all, a.all)};
}
LANE_INLINE Floats from_half(const Half* from) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from))};
}
LANE_INLINE void store_half(Half* to, Floats a) {
    _mm256_storeu_si256((__m256i*)to, _mm512_cvtps_ph(a.all, _MM_FROUND_TO_NEAREST_INT));
}
LANE_INLINE Floats to_floats(Ints a) { return {_mm512_cvtepi32_ps(a.all)}; }
LANE_INLINE Floats power_of_two(Floats shifted) {
    const __m512i bits = _mm512_add_epi32(_mm512_castps_si512(shifted.all), _mm512_set1_epi32(127));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(bits, 23))};
}
LANE_INLINE float sum_of(Floats a) {
    const __m256 eight =
        _mm256_add_ps(_mm512_castps512_ps256(a.all), _mm512_extractf32x8_ps(a.all, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
}
LANE_INLINE float greatest_of(Floats a) {
    const __m256 eight =
        _mm256_max_ps(_mm512_castps512_ps256(a.all), _mm512_extractf32x8_ps(a.all, 1));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_shuffle_ps(four, four, 1)));
}
LANE_INLINE uint32_t greatest_magnitude(Floats a) {
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    return uint32_t(_mm512_reduce_max_epi32(_mm512_and_si512(_mm512_castps_si512(a.all), mask)));
}
LANE_INLINE int32_t store_rounded(int8_t* to, Floats a) {
    const __m512i whole = _mm512_cvtps_epi32(a.all);
    _mm_storeu_si128((__m128i*)to, _mm512_cvtepi32_epi8(whole));
    return _mm512_reduce_add_epi32(whole);
}
LANE_INLINE int32_t store_rounded(int16_t* to, Floats a) {
    const __m512i whole = _mm512_cvtps_epi32(a.all);
    _mm256_storeu_si256((__m256i*)to, _mm512_cvtepi32_epi16(whole));
    return _mm512_reduce_add_epi32(whole);
}
LANE_INLINE __m512i four_bytes(const int8_t* from) {
    int32_t bytes;
    std::memcpy(&bytes, from, 4);
    return _mm512_set1_epi32(bytes);
}

template <int rows>
LANE_INLINE void dot_four_bit(const uint8_t* weight, const int8_t* x, Ints* sums) {
    const __m512i mask = _mm512_set1_epi8(15);
    for (int row = 0; row < rows; row++) sums[row].all = _mm512_setzero_si512();
#pragma GCC unroll 2
    for (int pair = 0; pair < 2; pair++) {
        const __m512i both = _mm512_load_si512(weight + pair * 64);
        const __m512i low = _mm512_and_si512(both, mask);
        const __m512i high = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
#pragma GCC unroll 8
        for (int row = 0; row < rows; row++)
            sums[row].all =
                _mm512_dpbusd_epi32(sums[row].all, low, four_bytes(x + pair * 64 + row * 4));
#pragma GCC unroll 8
        for (int row = 0; row < rows; row++)
            sums[row].all =
                _mm512_dpbusd_epi32(sums[row].all, high, four_bytes(x + pair * 64 + 32 + row * 4));
    }
}

// The instruction takes unsigned weights: w + 128, and 128 times the sum of x is taken off.
template <int rows>
LANE_INLINE void dot_eight_bit(const uint8_t* weight, const int8_t* x, const int32_t* x_sums,
                               Ints* sums) {
    const __m512i top = _mm512_set1_epi8(-128);
    for (int row = 0; row < rows; row++) sums[row].all = _mm512_set1_epi32(-128 * x_sums[row]);
#pragma GCC unroll 4
    for (int quad = 0; quad < 4; quad++) {
        const __m512i unsigned_weight = _mm512_xor_si512(_mm512_load_si512(weight + quad * 64), top);
#pragma GCC unroll 8
        for (int row = 0; row < rows; row++)
            sums[row].all = _mm512_dpbusd_epi32(sums[row].all, unsigned_weight,
                                                four_bytes(x + quad * 32 + row * 4));
    }
}

// Four inputs of eight columns, as words.
template <bool is_four_bit>
LANE_INLINE __m512i eight_columns(const uint8_t* weight, int quad, int part) {
    if constexpr (!is_four_bit)
        return _mm512_cvtepi8_epi16(
            _mm256_load_si256((const __m256i*)(weight + quad * 64 + part * 32)));
    __m256i both = _mm256_load_si256((const __m256i*)(weight + quad / 2 * 64 + part * 32));
    if (quad % 2) both = _mm256_srli_epi16(both, 4);
    return _mm512_cvtepu8_epi16(_mm256_and_si256(both, _mm256_set1_epi8(15)));
}
constexpr int kFineRows = 4;

// Sums of a whole group; `x` points at it, and rows lie `stride` values apart.
template <int rows, bool is_four_bit>
LANE_INLINE void dot_finely(const uint8_t* weight, const int16_t* x, int64_t stride, Ints* sums) {
    __m512i pairs[rows][2];  // of eight columns each: inputs 0 and 1, inputs 2 and 3
    for (int row = 0; row < rows; row++) pairs[row][0] = pairs[row][1] = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int quad = 0; quad < 8; quad++) {
        const __m512i left = eight_columns<is_four_bit>(weight, quad, 0);
        const __m512i right = eight_columns<is_four_bit>(weight, quad, 1);
#pragma GCC unroll 4
        for (int row = 0; row < rows; row++) {
            int64_t words;
            std::memcpy(&words, x + row * stride + quad * 4, 8);
            const __m512i four = _mm512_set1_epi64(words);
            pairs[row][0] = _mm512_dpwssd_epi32(pairs[row][0], left, four);
            pairs[row][1] = _mm512_dpwssd_epi32(pairs[row][1], right, four);
        }
    }
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    for (int row = 0; row < rows; row++)
        sums[row].all =
            _mm512_add_epi32(_mm512_permutex2var_epi32(pairs[row][0], even, pairs[row][1]),
                             _mm512_permutex2var_epi32(pairs[row][0], odd, pairs[row][1]));
}
}  // namespace
