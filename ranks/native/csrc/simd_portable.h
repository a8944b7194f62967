// Sixteen values at once, in plain C++.
#pragma once
#include <cstring>

#include "kernels.h"

#define LANE_INLINE static inline __attribute__((always_inline))

namespace {
using lanehost::Half;
using lanehost::kColumns;

constexpr int kRowBlock = 4;
constexpr int kRowsInRegisters = kRowBlock;
constexpr int kQueryBlock = 4;
constexpr int kVectors = 4;  // of a value row that are held at once
constexpr int kFetchBytes = 2048;

struct Floats {
    float at[16];
};
struct Ints {
    int32_t at[16];
};

#define EACH for (int i = 0; i < 16; i++)

LANE_INLINE float half_to_float(Half half) {
    const uint32_t sign = uint32_t(half & 0x8000) << 16, magnitude = half & 0x7fff;
    uint32_t bits;
    float value;
    if (magnitude >= 0x7c00) {
        bits = sign | 0x7f800000 | (magnitude & 0x3ff) << 13;
        if (magnitude > 0x7c00) bits |= 0x400000;
    } else if (magnitude >= 0x400) {
        bits = sign | ((magnitude << 13) + 0x38000000);
    } else {
        value = float(magnitude) * 0x1p-24f;
        std::memcpy(&bits, &value, 4);
        bits |= sign;
    }
    std::memcpy(&value, &bits, 4);
    return value;
}

LANE_INLINE Half float_to_half(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const Half sign = Half(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return Half(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) return Half(sign | 0x7c00);  // 65520 and more are infinite
    if (magnitude < 0x38800000) {  // below 2^-14: a float adds where the halves' steps are
        float small;
        std::memcpy(&small, &magnitude, 4);
        small += 0.5f;
        std::memcpy(&magnitude, &small, 4);
        return Half(sign | (magnitude - 0x3f000000));
    }
    magnitude += 0xfff + (magnitude >> 13 & 1);
    return Half(sign | (magnitude - 0x38000000) >> 13);
}

LANE_INLINE void keep_order() {}
LANE_INLINE void keep_in_memory(void*) {}
LANE_INLINE Floats load(const float* from) {
    Floats a;
    std::memcpy(a.at, from, 64);
    return a;
}
LANE_INLINE void store(float* to, Floats a) { std::memcpy(to, a.at, 64); }
LANE_INLINE Floats broadcast(float value) {
    Floats a;
    EACH a.at[i] = value;
    return a;
}
LANE_INLINE Floats zero() { return broadcast(0); }
LANE_INLINE Floats add(Floats a, Floats b) {
    EACH a.at[i] += b.at[i];
    return a;
}
LANE_INLINE Floats subtract(Floats a, Floats b) {
    EACH a.at[i] -= b.at[i];
    return a;
}
LANE_INLINE Floats multiply(Floats a, Floats b) {
    EACH a.at[i] *= b.at[i];
    return a;
}
LANE_INLINE Floats divide(Floats a, Floats b) {
    EACH a.at[i] /= b.at[i];
    return a;
}
// The second where the two cannot be compared.
LANE_INLINE Floats greater_of(Floats a, Floats b) {
    EACH a.at[i] = a.at[i] > b.at[i] ? a.at[i] : b.at[i];
    return a;
}
LANE_INLINE Floats lesser_of(Floats a, Floats b) {
    EACH a.at[i] = a.at[i] < b.at[i] ? a.at[i] : b.at[i];
    return a;
}
LANE_INLINE Floats negate(Floats a) {
    EACH a.at[i] = -a.at[i];
    return a;
}
// `a` where first <= index < last, else `b`.
LANE_INLINE Floats choose(int first, int last, Floats a, Floats b) {
    EACH a.at[i] = i >= first && i < last ? a.at[i] : b.at[i];
    return a;
}
LANE_INLINE Floats from_half(const Half* from) {
    Floats a;
    EACH a.at[i] = half_to_float(from[i]);
    return a;
}
LANE_INLINE void store_half(Half* to, Floats a) { EACH to[i] = float_to_half(a.at[i]); }
LANE_INLINE Floats to_floats(Ints a) {
    Floats b;
    EACH b.at[i] = float(a.at[i]);
    return b;
}
// 2^n, where n stands in the lowest bits of a float near 1.5 * 2^23.
LANE_INLINE Floats power_of_two(Floats shifted) {
    uint32_t bits[16];
    std::memcpy(bits, shifted.at, 64);
    EACH bits[i] = (bits[i] + 127) << 23;
    std::memcpy(shifted.at, bits, 64);
    return shifted;
}
// Added as a tree: i + 8, i + 4, i + 2, i + 1.
LANE_INLINE float sum_of(Floats a) {
    for (int width = 8; width; width /= 2)
        for (int i = 0; i < width; i++) a.at[i] += a.at[i + width];
    return a.at[0];
}
LANE_INLINE float greatest_of(Floats a) {
    for (int width = 8; width; width /= 2)
        for (int i = 0; i < width; i++)
            a.at[i] = a.at[i] > a.at[i + width] ? a.at[i] : a.at[i + width];
    return a.at[0];
}
// The greatest magnitude as bits, which order NaN above infinity above all numbers.
LANE_INLINE uint32_t greatest_magnitude(Floats a) {
    uint32_t greatest = 0, bits[16];
    std::memcpy(bits, a.at, 64);
    EACH {
        const uint32_t magnitude = bits[i] & 0x7fffffff;
        greatest = magnitude > greatest ? magnitude : greatest;
    }
    return greatest;
}
// Round values of at most 127 to the nearest (even) whole number; gives their sum.
LANE_INLINE int32_t store_rounded(int8_t* to, Floats a) {
    int32_t sum = 0;
    EACH {
        const float shifted = a.at[i] + 0x1.8p23f;
        int32_t bits;
        std::memcpy(&bits, &shifted, 4);
        to[i] = int8_t(bits - 0x4b400000);
        sum += to[i];
    }
    return sum;
}

LANE_INLINE int32_t store_rounded(int16_t* to, Floats a) {
    int32_t sum = 0;
    EACH {
        const float shifted = a.at[i] + 0x1.8p23f;
        int32_t bits;
        std::memcpy(&bits, &shifted, 4);
        to[i] = int16_t(bits - 0x4b400000);
        sum += to[i];
    }
    return sum;
}

// Sums of half a group for 16 columns; `x` points at the half in its tile, at the first row.
template <int rows>
LANE_INLINE void dot_four_bit(const uint8_t* weight, const int8_t* x, Ints* sums) {
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < kColumns; column++) {
            int32_t sum = 0;
            for (int quad = 0; quad < 4; quad++)
                for (int k = 0; k < 4; k++) {
                    const uint8_t both = weight[quad / 2 * 64 + column * 4 + k];
                    sum += (quad % 2 ? both >> 4 : both & 15) * x[quad * 32 + row * 4 + k];
                }
            sums[row].at[column] = sum;
        }
}
template <int rows>
LANE_INLINE void dot_eight_bit(const uint8_t* weight, const int8_t* x, const int32_t*, Ints* sums) {
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < kColumns; column++) {
            int32_t sum = 0;
            for (int quad = 0; quad < 4; quad++)
                for (int k = 0; k < 4; k++)
                    sum += int8_t(weight[quad * 64 + column * 4 + k]) * x[quad * 32 + row * 4 + k];
            sums[row].at[column] = sum;
        }
}
constexpr int kFineRows = 2;

// Sums of a whole group; `x` points at it, and rows lie `stride` values apart.
template <int rows, bool is_four_bit>
LANE_INLINE void dot_finely(const uint8_t* weight, const int16_t* x, int64_t stride, Ints* sums) {
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < kColumns; column++) {
            int32_t sum = 0;
            for (int i = 0; i < lanehost::kGroup; i++) {
                const int quad = i / 4, at = column * 4 + i % 4;
                const int value = is_four_bit ? weight[quad / 2 * 64 + at] >> quad % 2 * 4 & 15
                                              : int8_t(weight[quad * 64 + at]);
                sum += value * x[row * stride + i];
            }
            sums[row].at[column] = sum;
        }
}
#undef EACH
}  // namespace
