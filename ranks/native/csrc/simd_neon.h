// Sixteen values at once, as four NEON registers; products by the dot-product instructions.
//
// No intrinsic that multiplies and adds floats is used (`vmla`, `vfma`): they may be fused.
#pragma once
#include <arm_neon.h>

#include <cstring>

#include "kernels.h"

#define LANE_INLINE static inline __attribute__((always_inline))

namespace {
using lanehost::Half;

constexpr int kRowBlock = 4;
constexpr int kRowsInRegisters = kRowBlock;
constexpr int kQueryBlock = 4;
constexpr int kVectors = 1;
constexpr int kFetchBytes = 2048;

struct Floats {
    float32x4_t first, second, third, fourth;
};
struct Ints {
    int32x4_t first, second, third, fourth;
};
// 16 columns, four inputs of each.
struct Quads {
    int8x16_t first, second, third, fourth;
};

#define OF_ONE(f, a) {f(a.first), f(a.second), f(a.third), f(a.fourth)}
#define OF_BOTH(f, a, b) \
    {f(a.first, b.first), f(a.second, b.second), f(a.third, b.third), f(a.fourth, b.fourth)}

LANE_INLINE void keep_order() {}
LANE_INLINE void keep_in_memory(void*) {}
LANE_INLINE Floats load(const float* from) {
    return {vld1q_f32(from), vld1q_f32(from + 4), vld1q_f32(from + 8), vld1q_f32(from + 12)};
}
LANE_INLINE void store(float* to, Floats a) {
    vst1q_f32(to, a.first);
    vst1q_f32(to + 4, a.second);
    vst1q_f32(to + 8, a.third);
    vst1q_f32(to + 12, a.fourth);
}
LANE_INLINE Floats broadcast(float value) {
    const float32x4_t all = vdupq_n_f32(value);
    return {all, all, all, all};
}
LANE_INLINE Floats zero() { return broadcast(0); }
LANE_INLINE Floats add(Floats a, Floats b) { return OF_BOTH(vaddq_f32, a, b); }
LANE_INLINE Floats subtract(Floats a, Floats b) { return OF_BOTH(vsubq_f32, a, b); }
LANE_INLINE Floats multiply(Floats a, Floats b) { return OF_BOTH(vmulq_f32, a, b); }
LANE_INLINE Floats divide(Floats a, Floats b) { return OF_BOTH(vdivq_f32, a, b); }
// Not `vmax`, which gives what is no number wherever it stands: the second, as the other sets.
LANE_INLINE float32x4_t greater_of(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
LANE_INLINE float32x4_t lesser_of(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
LANE_INLINE Floats greater_of(Floats a, Floats b) { return OF_BOTH(greater_of, a, b); }
LANE_INLINE Floats lesser_of(Floats a, Floats b) { return OF_BOTH(lesser_of, a, b); }
LANE_INLINE Floats negate(Floats a) { return OF_ONE(vnegq_f32, a); }
LANE_INLINE float32x4_t choose(int first, int last, float32x4_t a, float32x4_t b) {
    const int32x4_t index = {0, 1, 2, 3};
    const uint32x4_t is_from = vcgeq_s32(index, vdupq_n_s32(first));
    return vbslq_f32(vandq_u32(is_from, vcltq_s32(index, vdupq_n_s32(last))), a, b);
}
LANE_INLINE Floats choose(int first, int last, Floats a, Floats b) {
    return {choose(first, last, a.first, b.first), choose(first - 4, last - 4, a.second, b.second),
            choose(first - 8, last - 8, a.third, b.third),
            choose(first - 12, last - 12, a.fourth, b.fourth)};
}
LANE_INLINE float32x4_t four_from_half(const Half* from) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
}
LANE_INLINE Floats from_half(const Half* from) {
    return {four_from_half(from), four_from_half(from + 4), four_from_half(from + 8),
            four_from_half(from + 12)};
}
LANE_INLINE uint16x4_t four_to_half(float32x4_t a) {
    return vreinterpret_u16_f16(vcvt_f16_f32(a));
}
LANE_INLINE void store_half(Half* to, Floats a) {
    vst1_u16(to, four_to_half(a.first));
    vst1_u16(to + 4, four_to_half(a.second));
    vst1_u16(to + 8, four_to_half(a.third));
    vst1_u16(to + 12, four_to_half(a.fourth));
}
LANE_INLINE Floats to_floats(Ints a) { return OF_ONE(vcvtq_f32_s32, a); }
LANE_INLINE float32x4_t power_of_two(float32x4_t shifted) {
    const int32x4_t bits = vaddq_s32(vreinterpretq_s32_f32(shifted), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(bits, 23));
}
LANE_INLINE Floats power_of_two(Floats shifted) { return OF_ONE(power_of_two, shifted); }
LANE_INLINE float sum_of(Floats a) {
    const float32x4_t four = vaddq_f32(vaddq_f32(a.first, a.third), vaddq_f32(a.second, a.fourth));
    return vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
}
LANE_INLINE float greatest_of(Floats a) {
    const float32x4_t four =
        greater_of(greater_of(a.first, a.third), greater_of(a.second, a.fourth));
    const float zeroth = vgetq_lane_f32(four, 0), first = vgetq_lane_f32(four, 1),
                second = vgetq_lane_f32(four, 2), third = vgetq_lane_f32(four, 3);
    const float even = zeroth > second ? zeroth : second, odd = first > third ? first : third;
    return even > odd ? even : odd;
}
LANE_INLINE uint32x4_t magnitude(float32x4_t a) { return vreinterpretq_u32_f32(vabsq_f32(a)); }
LANE_INLINE uint32_t greatest_magnitude(Floats a) {
    return vmaxvq_u32(vmaxq_u32(vmaxq_u32(magnitude(a.first), magnitude(a.second)),
                                vmaxq_u32(magnitude(a.third), magnitude(a.fourth))));
}
LANE_INLINE int32_t store_rounded(int8_t* to, Floats a) {
    const Ints whole = OF_ONE(vcvtnq_s32_f32, a);
    const int16x8_t low = vcombine_s16(vmovn_s32(whole.first), vmovn_s32(whole.second));
    const int16x8_t high = vcombine_s16(vmovn_s32(whole.third), vmovn_s32(whole.fourth));
    vst1q_s8(to, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
    return vaddlvq_s16(vaddq_s16(low, high));
}

LANE_INLINE int32_t store_rounded(int16_t* to, Floats a) {
    const Ints whole = OF_ONE(vcvtnq_s32_f32, a);
    vst1q_s16(to, vcombine_s16(vmovn_s32(whole.first), vmovn_s32(whole.second)));
    vst1q_s16(to + 8, vcombine_s16(vmovn_s32(whole.third), vmovn_s32(whole.fourth)));
    return vaddvq_s32(vaddq_s32(vaddq_s32(whole.first, whole.second),
                                vaddq_s32(whole.third, whole.fourth)));
}

LANE_INLINE Quads load_quads(const uint8_t* from) {
    const int8_t* at = (const int8_t*)from;
    return {vld1q_s8(at), vld1q_s8(at + 16), vld1q_s8(at + 32), vld1q_s8(at + 48)};
}
LANE_INLINE int8x16_t low_half(int8x16_t both) { return vandq_s8(both, vdupq_n_s8(15)); }
LANE_INLINE int8x16_t high_half(int8x16_t both) {
    return vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s8(both), 4));
}

// `x` holds four inputs of each of four rows.
template <int row>
LANE_INLINE Ints add_dots(Ints sums, Quads weight, int8x16_t x) {
    return {vdotq_laneq_s32(sums.first, weight.first, x, row),
            vdotq_laneq_s32(sums.second, weight.second, x, row),
            vdotq_laneq_s32(sums.third, weight.third, x, row),
            vdotq_laneq_s32(sums.fourth, weight.fourth, x, row)};
}
// A block of rows begins at row 0 or 4 of its tile, so all four can be loaded.
template <int rows>
LANE_INLINE void add_dots(Quads weight, const int8_t* at, Ints* sums) {
    static_assert(rows <= 4 && kRowBlock == 4, "the rows below");
    const int8x16_t x = vld1q_s8(at);
    sums[0] = add_dots<0>(sums[0], weight, x);
    if constexpr (rows > 1) sums[1] = add_dots<1>(sums[1], weight, x);
    if constexpr (rows > 2) sums[2] = add_dots<2>(sums[2], weight, x);
    if constexpr (rows > 3) sums[3] = add_dots<3>(sums[3], weight, x);
}
template <int rows>
LANE_INLINE void clear(Ints* sums) {
    const int32x4_t none = vdupq_n_s32(0);
    for (int row = 0; row < rows; row++) sums[row] = {none, none, none, none};
}

template <int rows>
LANE_INLINE void dot_four_bit(const uint8_t* weight, const int8_t* x, Ints* sums) {
    clear<rows>(sums);
#pragma GCC unroll 2
    for (int pair = 0; pair < 2; pair++) {
        const Quads both = load_quads(weight + pair * 64);
        add_dots<rows>(OF_ONE(low_half, both), x + pair * 64, sums);
        add_dots<rows>(OF_ONE(high_half, both), x + pair * 64 + 32, sums);
    }
}
template <int rows>
LANE_INLINE void dot_eight_bit(const uint8_t* weight, const int8_t* x, const int32_t*, Ints* sums) {
    clear<rows>(sums);
#pragma GCC unroll 4
    for (int quad = 0; quad < 4; quad++)
        add_dots<rows>(load_quads(weight + quad * 64), x + quad * 32, sums);
}
constexpr int kFineRows = 2;

template <bool is_four_bit>
LANE_INLINE Quads quads_of(const uint8_t* weight, int quad) {
    if constexpr (!is_four_bit) return load_quads(weight + quad * 64);
    const Quads both = load_quads(weight + quad / 2 * 64);
    if (quad % 2) return OF_ONE(high_half, both);
    return OF_ONE(low_half, both);
}
LANE_INLINE int32x4_t join_parts(int32x4_t upper, int32x4_t lower) {
    return vaddq_s32(vshlq_n_s32(upper, 7), lower);
}

// Sums of a whole group; `x` points at it, and rows lie `stride` values apart. A value is 128
// times its upper bits and its lower ones, both within a signed byte.
template <int rows, bool is_four_bit>
LANE_INLINE void dot_finely(const uint8_t* weight, const int16_t* x, int64_t stride, Ints* sums) {
    Ints upper[rows], lower[rows];
    clear<rows>(upper);
    clear<rows>(lower);
#pragma GCC unroll 8
    for (int quad = 0; quad < 8; quad++) {
        const Quads columns = quads_of<is_four_bit>(weight, quad);
        for (int row = 0; row < rows; row++) {
            const int16x4_t four = vld1_s16(x + row * stride + quad * 4);
            const int8x8_t parts = vmovn_s16(
                vcombine_s16(vshr_n_s16(four, 7), vand_s16(four, vdup_n_s16(127))));
            const int8x16_t both = vcombine_s8(parts, parts);
            upper[row] = add_dots<0>(upper[row], columns, both);
            lower[row] = add_dots<1>(lower[row], columns, both);
        }
    }
    for (int row = 0; row < rows; row++) sums[row] = OF_BOTH(join_parts, upper[row], lower[row]);
}
#undef OF_ONE
#undef OF_BOTH
}  // namespace
