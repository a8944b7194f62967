// The kernels over sixteen values at once; each set includes this after its own simd header.
//
// Everything here has internal linkage, and no template of the standard library is used:
// the linker would else take one set's copy of a function for all of them.
#pragma once

namespace {
using lanehost::Activations;
using lanehost::FineActivations;
using lanehost::kFinest;
using lanehost::kGroup;
using lanehost::kHalfGroup;
using lanehost::kTileRows;

LANE_INLINE float float_of_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

// e^x, from e^-87 to e^88; what is not a number stays so.
LANE_INLINE Floats exponential(Floats x) {
    const Floats shift = broadcast(0x1.8p23f);
    x = greater_of(broadcast(-87.0f), x);
    x = lesser_of(broadcast(88.0f), x);
    const Floats shifted = add(multiply(x, broadcast(1.44269504f)), shift);
    const Floats whole = subtract(shifted, shift);
    Floats rest = subtract(x, multiply(whole, broadcast(0.693359375f)));
    rest = subtract(rest, multiply(whole, broadcast(-2.12194440e-4f)));
    Floats sum = broadcast(1.9875691500e-4f);
    sum = add(multiply(sum, rest), broadcast(1.3981999507e-3f));
    sum = add(multiply(sum, rest), broadcast(8.3334519073e-3f));
    sum = add(multiply(sum, rest), broadcast(4.1665795894e-2f));
    sum = add(multiply(sum, rest), broadcast(1.6666665459e-1f));
    sum = add(multiply(sum, rest), broadcast(0.5f));
    sum = add(multiply(sum, multiply(rest, rest)), add(rest, broadcast(1.0f)));
    return multiply(sum, power_of_two(shifted));
}

// ---- activations

// What holds something not finite gets a scale that is not a number, so that what is computed
// from it is not one either; what is below 1e-30 counts as zeros. Both as bits.
constexpr uint32_t kLeast = 0x0da24260, kInfinite = 0x7f800000, kNotANumber = 0x7fc00000;

LANE_INLINE void quantize_half(const float* x, int8_t* values, float* scale, int32_t* sum) {
    const Floats part = load(x);
    const uint32_t greatest = greatest_magnitude(part);
    int8_t rounded[kHalfGroup];
    if (greatest < kLeast || greatest >= kInfinite) {
        std::memset(rounded, 0, kHalfGroup);
        *sum = 0;
        *scale = greatest < kLeast ? 0.0f : float_of_bits(kNotANumber);
    } else {
        *sum = store_rounded(rounded, multiply(part, broadcast(127.0f / float_of_bits(greatest))));
        *scale = float_of_bits(greatest) / 127.0f;
    }
    for (int quad = 0; quad < 4; quad++)
        std::memcpy(values + quad * kTileRows * 4, rounded + quad * 4, 4);
}

void quantize(const float* x, const Activations& to, int row, int first, int last) {
    const size_t tile = size_t(row / kTileRows) * to.groups;
    const int in_tile = row % kTileRows;
    for (int group = first; group < last; group++, x += kGroup) {
        const size_t at = (tile + group) * kTileRows + in_tile;
        const size_t half = (tile + group) * 2 * kTileRows + in_tile;
        int8_t* values = to.values + (tile + group) * kTileRows * kGroup + in_tile * 4;
        float* scales = to.scales + half;
        int32_t* sums = to.sums + half;
        quantize_half(x, values, scales, sums);
        quantize_half(x + kHalfGroup, values + kTileRows * kHalfGroup, scales + kTileRows,
                      sums + kTileRows);
        to.weighted_sums[at] =
            float(sums[0]) * scales[0] + float(sums[kTileRows]) * scales[kTileRows];
    }
}

void quantize_finely(const float* x, const FineActivations& to, int row) {
    for (int group = 0; group < to.groups; group++, x += kGroup) {
        const size_t at = size_t(row) * to.groups + group;
        int16_t* values = to.values + at * kGroup;
        const Floats first = load(x), second = load(x + 16);
        const uint32_t one = greatest_magnitude(first), other = greatest_magnitude(second);
        const uint32_t greatest = one > other ? one : other;
        if (greatest < kLeast || greatest >= kInfinite) {
            std::memset(values, 0, kGroup * sizeof(int16_t));
            to.scales[at] = greatest < kLeast ? 0.0f : float_of_bits(kNotANumber);
            to.weighted_sums[at] = to.scales[at];
            continue;
        }
        const Floats factor = broadcast(kFinest / float_of_bits(greatest));
        const int32_t sum = store_rounded(values, multiply(first, factor)) +
                            store_rounded(values + 16, multiply(second, factor));
        to.scales[at] = float_of_bits(greatest) / kFinest;
        to.weighted_sums[at] = float(sum) * to.scales[at];
    }
}

// ---- one row at a time

void norm(const float* x, const float* weight, int width, float eps, float* y) {
    Floats squares = zero();
    for (int i = 0; i < width; i += 16) {
        const Floats part = load(x + i);
        squares = add(squares, multiply(part, part));
    }
    const float mean = sum_of(squares) / float(width);
    const Floats factor = broadcast(1.0f / __builtin_sqrtf(mean + eps));
    for (int i = 0; i < width; i += 16)
        store(y + i, multiply(multiply(load(x + i), factor), load(weight + i)));
}

// In scalars where half a head is no multiple of 16: the order within a value is the same.
void rotate(float* head, const float* cos, const float* sin, int head_dim, float scale) {
    const int half = head_dim / 2;
    int i = 0;
    for (; i + 16 <= half; i += 16) {
        const Floats first = load(head + i), second = load(head + half + i);
        const Floats c = load(cos + i), s = load(sin + i), by = broadcast(scale);
        store(head + i, multiply(subtract(multiply(first, c), multiply(second, s)), by));
        store(head + half + i, multiply(add(multiply(second, c), multiply(first, s)), by));
    }
    for (; i < half; i++) {
        const float first = head[i], second = head[half + i];
        head[i] = (first * cos[i] - second * sin[i]) * scale;
        head[half + i] = (second * cos[i] + first * sin[i]) * scale;
    }
}

void gate(const float* gate, const float* up, int count, float* y) {
    for (int i = 0; i < count; i += 16) {
        const Floats x = load(gate + i);
        const Floats below = add(broadcast(1.0f), exponential(negate(x)));
        store(y + i, multiply(divide(x, below), load(up + i)));
    }
}

void add_to(float* x, const float* y, int count) {
    for (int i = 0; i < count; i += 16) store(x + i, add(load(x + i), load(y + i)));
}

void to_half(const float* x, int count, Half* y) {
    for (int i = 0; i < count; i += 16) store_half(y + i, load(x + i));
}

// The first of the greatest values; -1 where one of them is no finite number.
int32_t likeliest(const float* x, int count) {
    constexpr int kAtOnce = 512;
    float most = float_of_bits(0xff800000);
    int at = 0, i = 0;
    Floats wrong = zero();  // stays 0, but what is not finite times 0 is no number
    while (i + 16 <= count) {
        const int first = i, end = i + kAtOnce < count ? i + kAtOnce : count;
        Floats greatest = load(x + i);
        for (; i + 16 <= end; i += 16) {
            const Floats part = load(x + i);
            greatest = greater_of(greatest, part);
            wrong = add(wrong, multiply(part, zero()));
        }
        if (greatest_of(greatest) > most) most = greatest_of(greatest), at = first;
    }
    float sum = sum_of(wrong);
    for (; i < count; i++) {
        sum += x[i] * 0.0f;
        if (x[i] > most) most = x[i], at = i;
    }
    if (!(sum == 0.0f)) return -1;
    while (x[at] != most) at++;
    return at;
}
}  // namespace
