// Sixteen values at once, as two AVX2 registers.
//
// Products of 4-bit weights are added in 16 bits: four pairs of 15 * 127 stay below 2^15.
// Compiled without re-association: g++ would otherwise reorder the adds and spill the sums.
#pragma once
#include <immintrin.h>

#include <cstring>

#include "kernels.h"

#define LANE_INLINE static inline __attribute__((always_inline))

namespace {
using lanehost::Half;

constexpr int kRowBlock = 4;
constexpr int kRowsInRegisters = 2;  // with more, their sums lie in memory
constexpr int kQueryBlock = 4;
constexpr int kVectors = 1;
constexpr int kFetchBytes = 2048;

struct Floats {
    __m256 low, high;
};
struct Ints {
    __m256i low, high;
};

LANE_INLINE Floats load(const float* from) {
    return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}
LANE_INLINE void store(float* to, Floats a) {
    _mm256_storeu_ps(to, a.low);
    _mm256_storeu_ps(to + 8, a.high);
}
LANE_INLINE Floats broadcast(float value) {
    const __m256 all = _mm256_set1_ps(value);
    return {all, all};
}
LANE_INLINE Floats zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
LANE_INLINE Floats add(Floats a, Floats b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
LANE_INLINE Floats subtract(Floats a, Floats b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
LANE_INLINE Floats multiply(Floats a, Floats b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
LANE_INLINE Floats divide(Floats a, Floats b) {
    return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
LANE_INLINE Floats greater_of(Floats a, Floats b) {
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
LANE_INLINE Floats lesser_of(Floats a, Floats b) {
    return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
LANE_INLINE Floats negate(Floats a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_xor_ps(a.low, sign), _mm256_xor_ps(a.high, sign)};
}
LANE_INLINE Floats choose(int first, int last, Floats a, Floats b) {
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), eight = _mm256_set1_epi32(8);
    const __m256i below = _mm256_set1_epi32(first - 1), above = _mm256_set1_epi32(last);
    const __m256i next = _mm256_add_epi32(index, eight);
    const __m256i low =
        _mm256_and_si256(_mm256_cmpgt_epi32(index, below), _mm256_cmpgt_epi32(above, index));
    const __m256i high =
        _mm256_and_si256(_mm256_cmpgt_epi32(next, below), _mm256_cmpgt_epi32(above, next));
    return {_mm256_blendv_ps(b.low, a.low, _mm256_castsi256_ps(low)),
            _mm256_blendv_ps(b.high, a.high, _mm256_castsi256_ps(high))};
}
LANE_INLINE Floats from_half(const Half* from) {
    return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from)),
            _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(from + 8)))};
}
LANE_INLINE void store_half(Half* to, Floats a) {
    _mm_storeu_si128((__m128i*)to, _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i*)(to + 8), _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT));
}
LANE_INLINE Floats to_floats(Ints a) {
    return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}
LANE_INLINE __m256 power_of_two(__m256 shifted) {
    const __m256i bits = _mm256_add_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23));
}
LANE_INLINE Floats power_of_two(Floats shifted) {
    return {power_of_two(shifted.low), power_of_two(shifted.high)};
}
LANE_INLINE float sum_of(Floats a) {
    const __m256 eight = _mm256_add_ps(a.low, a.high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
}
LANE_INLINE float greatest_of(Floats a) {
    const __m256 eight = _mm256_max_ps(a.low, a.high);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_shuffle_ps(four, four, 1)));
}
LANE_INLINE uint32_t greatest_magnitude(Floats a) {
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    const __m256i eight = _mm256_max_epi32(_mm256_and_si256(_mm256_castps_si256(a.low), mask),
                                           _mm256_and_si256(_mm256_castps_si256(a.high), mask));
    __m128i four =
        _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return uint32_t(_mm_cvtsi128_si32(four));
}
LANE_INLINE int32_t sum_of(__m256i eight) {
    __m128i four =
        _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return _mm_cvtsi128_si32(four);
}
LANE_INLINE int32_t store_rounded(int8_t* to, Floats a) {
    const __m256i low = _mm256_cvtps_epi32(a.low), high = _mm256_cvtps_epi32(a.high);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i*)to, bytes);
    return sum_of(_mm256_add_epi32(low, high));
}
LANE_INLINE int32_t store_rounded(int16_t* to, Floats a) {
    const __m256i low = _mm256_cvtps_epi32(a.low), high = _mm256_cvtps_epi32(a.high);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    _mm256_storeu_si256((__m256i*)to, words);
    return sum_of(_mm256_add_epi32(low, high));
}
// Integer sums in the order that is written: left to itself, g++ 12 adds them as a tree, which
// needs more registers than there are, and spills every product.
LANE_INLINE __m256i add_words(__m256i a, __m256i b) {
    asm("vpaddw %2, %1, %0" : "=x"(a) : "x"(a), "x"(b));
    return a;
}
LANE_INLINE __m256i add_doubles(__m256i a, __m256i b) {
    asm("vpaddd %2, %1, %0" : "=x"(a) : "x"(a), "x"(b));
    return a;
}
// What is read behind this is not read before it: the registers are full already.
LANE_INLINE void keep_order() { asm volatile("" ::: "memory"); }
// What lies here stays in memory: instructions add from it, and registers are left for products.
LANE_INLINE void keep_in_memory(void* at) { asm volatile("" ::"r"(at) : "memory"); }
LANE_INLINE __m256i four_bytes(const int8_t* from) {
    int32_t bytes;
    std::memcpy(&bytes, from, 4);
    return _mm256_set1_epi32(bytes);
}

template <int rows, bool is_first>
LANE_INLINE void add_quad(__m256i left, __m256i right, const int8_t* x, __m256i* low, __m256i* high) {
#pragma GCC unroll 8
    for (int row = 0; row < rows; row++) {
        const __m256i four = four_bytes(x + row * 4);
        const __m256i to_low = _mm256_maddubs_epi16(left, four);
        const __m256i to_high = _mm256_maddubs_epi16(right, four);
        low[row] = is_first ? to_low : add_words(low[row], to_low);
        high[row] = is_first ? to_high : add_words(high[row], to_high);
    }
    keep_order();
}
template <int rows>
LANE_INLINE void dot_four_bit(const uint8_t* weight, const int8_t* x, Ints* sums) {
    const __m256i mask = _mm256_set1_epi8(15), one = _mm256_set1_epi16(1);
    __m256i low[rows], high[rows];
#pragma GCC unroll 2
    for (int pair = 0; pair < 2; pair++, weight += 64, x += 64) {
        // Read twice: there is no register to keep them in.
        const __m256i* both = (const __m256i*)weight;
        __m256i left = _mm256_and_si256(_mm256_load_si256(both), mask);
        __m256i right = _mm256_and_si256(_mm256_load_si256(both + 1), mask);
        if (pair == 0)
            add_quad<rows, true>(left, right, x, low, high);
        else
            add_quad<rows, false>(left, right, x, low, high);
        left = _mm256_and_si256(_mm256_srli_epi16(_mm256_load_si256(both), 4), mask);
        right = _mm256_and_si256(_mm256_srli_epi16(_mm256_load_si256(both + 1), 4), mask);
        add_quad<rows, false>(left, right, x + 32, low, high);
    }
    for (int row = 0; row < rows; row++)
        sums[row] = {_mm256_madd_epi16(low[row], one), _mm256_madd_epi16(high[row], one)};
}

// |w| times x with the sign of w: pairs of at most 128 * 127 * 2 stay below 2^15.
template <int rows>
LANE_INLINE void dot_eight_bit(const uint8_t* weight, const int8_t* x, const int32_t*, Ints* sums) {
    const __m256i one = _mm256_set1_epi16(1);
    for (int row = 0; row < rows; row++) sums[row] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (int quad = 0; quad < 4; quad++) {
        const __m256i left = _mm256_load_si256((const __m256i*)(weight + quad * 64));
        const __m256i right = _mm256_load_si256((const __m256i*)(weight + quad * 64 + 32));
        const __m256i size_left = _mm256_abs_epi8(left), size_right = _mm256_abs_epi8(right);
#pragma GCC unroll 8
        for (int row = 0; row < rows; row++) {
            const __m256i four = four_bytes(x + quad * 32 + row * 4);
            const __m256i low = _mm256_maddubs_epi16(size_left, _mm256_sign_epi8(four, left));
            const __m256i high = _mm256_maddubs_epi16(size_right, _mm256_sign_epi8(four, right));
            sums[row].low = add_doubles(sums[row].low, _mm256_madd_epi16(low, one));
            sums[row].high = add_doubles(sums[row].high, _mm256_madd_epi16(high, one));
        }
    }
}

// Four inputs of four columns, as words.
template <bool is_four_bit>
LANE_INLINE __m256i four_columns(const uint8_t* weight, int quad, int part) {
    if constexpr (!is_four_bit)
        return _mm256_cvtepi8_epi16(
            _mm_load_si128((const __m128i*)(weight + quad * 64 + part * 16)));
    __m128i both = _mm_load_si128((const __m128i*)(weight + quad / 2 * 64 + part * 16));
    if (quad % 2) both = _mm_srli_epi16(both, 4);
    return _mm256_cvtepu8_epi16(_mm_and_si128(both, _mm_set1_epi8(15)));
}
constexpr int kFineRows = 2;

// Sums of a whole group; `x` points at it, and rows lie `stride` values apart.
template <int rows, bool is_four_bit>
LANE_INLINE void dot_finely(const uint8_t* weight, const int16_t* x, int64_t stride, Ints* sums) {
    __m256i pairs[rows][4];  // of four columns each: inputs 0 and 1, inputs 2 and 3
    for (int row = 0; row < rows; row++)
        for (int part = 0; part < 4; part++) pairs[row][part] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int quad = 0; quad < 8; quad++) {
        __m256i four[rows];
        for (int row = 0; row < rows; row++) {
            int64_t words;
            std::memcpy(&words, x + row * stride + quad * 4, 8);
            four[row] = _mm256_set1_epi64x(words);
        }
#pragma GCC unroll 4
        for (int part = 0; part < 4; part++) {
            const __m256i columns = four_columns<is_four_bit>(weight, quad, part);
#pragma GCC unroll 2
            for (int row = 0; row < rows; row++)
                pairs[row][part] =
                    add_doubles(pairs[row][part], _mm256_madd_epi16(columns, four[row]));
        }
    }
    for (int row = 0; row < rows; row++)
        sums[row] = {_mm256_permute4x64_epi64(_mm256_hadd_epi32(pairs[row][0], pairs[row][1]), 0xd8),
                     _mm256_permute4x64_epi64(_mm256_hadd_epi32(pairs[row][2], pairs[row][3]), 0xd8)};
}
}  // namespace
