// The kernels over sixteen values at once; each set includes this after its own simd header.
//
// Everything here has internal linkage, and no template of the standard library is used:
// the linker would else take one set's copy of a function for all of them.
#pragma once

namespace {
using lanehost::Activations;
using lanehost::FineActivations;
using lanehost::kColumns;
using lanehost::kEightBit;
using lanehost::kFinest;
using lanehost::kFourBit;
using lanehost::kGroup;
using lanehost::kHalfGroup;
using lanehost::kTileRows;
using lanehost::Matrix;
using lanehost::Wanted;
using lanehost::Write;

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

// ---- products

// What will be wanted next, fetched a few lines with each group: so the memory is busy while
// rows are multiplied, not only while the first of them are. First weights, then what the
// caller wants, into a cache that holds more.
struct Ahead {
    const uint8_t* at;
    int lines;
    Wanted wanted{};
    const uint8_t* wanted_at = nullptr;
    int wanted_left = 0;   // lines of its run
    int wanted_lines = 0;  // with each group
};

LANE_INLINE void fetch(Ahead& ahead) {
    for (int line = 0; line < ahead.lines; line++, ahead.at += 64) __builtin_prefetch(ahead.at, 0, 3);
    for (int line = 0; line < ahead.wanted_lines; line++, ahead.wanted_at += 64) {
        __builtin_prefetch(ahead.wanted_at, 0, 2);
        if (--ahead.wanted_left) continue;
        if (--ahead.wanted.left == 0) {
            ahead.wanted_lines = 0;
            return;
        }
        ahead.wanted_left = ahead.wanted.lines;
        ahead.wanted_at = ahead.wanted.base + *++ahead.wanted.runs - 64;
    }
}

// Let the next of `calls` calls of so many groups fetch its part of what is wanted.
LANE_INLINE void share_wanted(Wanted& wanted, int calls, int groups, Ahead& ahead) {
    if (wanted.left == 0) return;
    const int runs = (wanted.left + calls - 1) / calls;
    ahead.wanted = wanted;
    ahead.wanted.left = runs;
    ahead.wanted_at = wanted.base + wanted.runs[0];
    ahead.wanted_left = wanted.lines;
    ahead.wanted_lines = (runs * wanted.lines + groups - 1) / groups;
    wanted.runs += runs;
    wanted.left -= runs;
}

// What one group of `rows` rows adds, before the weights' scale; `x` is at the group.
template <int rows, int kind>
LANE_INLINE void multiply_group(const uint8_t* weight, const Activations& x, Floats* parts) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        const int8_t* values = x.values + half * kTileRows * kHalfGroup;
        const float* scales = x.scales + half * kTileRows;
        Ints sums[rows];
        if constexpr (kind == kFourBit)
            dot_four_bit<rows>(weight + half * 128, values, sums);
        else
            dot_eight_bit<rows>(weight + half * 256, values, x.sums + half * kTileRows, sums);
#pragma GCC unroll 8
        for (int row = 0; row < rows; row++) {
            const Floats part = multiply(to_floats(sums[row]), broadcast(scales[row]));
            parts[row] = half == 0 ? part : add(parts[row], part);
        }
        keep_order();
    }
}

LANE_INLINE void to_next_group(Activations& x) {
    x.values += kTileRows * kGroup;
    x.scales += 2 * kTileRows;
    x.sums += 2 * kTileRows;
    x.weighted_sums += kTileRows;
}

// `rows` rows of one tile times one block; x is offset to the first of the rows.
template <int rows>
LANE_INLINE void multiply_four_bit(const uint8_t* weight, Activations x, Ahead ahead,
                                   Floats* total) {
    for (int group = 0; group < x.groups; group++, weight += 320, to_next_group(x)) {
        fetch(ahead);
        Floats parts[rows];
        multiply_group<rows, kFourBit>(weight, x, parts);
        const Floats scale = from_half((const Half*)(weight + 256));
        const Floats minimum = from_half((const Half*)(weight + 288));
#pragma GCC unroll 8
        for (int row = 0; row < rows; row++) {
            total[row] = add(total[row], multiply(parts[row], scale));
            total[row] = add(total[row], multiply(minimum, broadcast(x.weighted_sums[row])));
        }
    }
}

// The same where the sums of all rows are too many for the registers: they lie in memory, and each
// row is done with before the next.
template <int rows>
LANE_INLINE void multiply_four_bit_in_memory(const uint8_t* weight, Activations x, Ahead ahead,
                                             Floats* total) {
    alignas(64) float totals[rows][kColumns], parts[rows][kColumns];
    for (int row = 0; row < rows; row++) store(totals[row], zero());
    keep_in_memory(totals);
    keep_in_memory(parts);
    for (int group = 0; group < x.groups; group++, weight += 320, to_next_group(x)) {
        fetch(ahead);
        Ints sums[rows];
        dot_four_bit<rows>(weight, x.values, sums);
#pragma GCC unroll 8
        for (int row = 0; row < rows; row++) {
            store(parts[row], multiply(to_floats(sums[row]), broadcast(x.scales[row])));
            keep_order();
        }
        dot_four_bit<rows>(weight + 128, x.values + kTileRows * kHalfGroup, sums);
        const Floats scale = from_half((const Half*)(weight + 256));
        const Floats minimum = from_half((const Half*)(weight + 288));
#pragma GCC unroll 8
        for (int row = 0; row < rows; row++) {
            Floats part = multiply(to_floats(sums[row]), broadcast(x.scales[kTileRows + row]));
            part = multiply(add(part, load(parts[row])), scale);
            part = add(part, load(totals[row]));
            store(totals[row], add(part, multiply(minimum, broadcast(x.weighted_sums[row]))));
            keep_order();
        }
    }
    for (int row = 0; row < rows; row++) total[row] = load(totals[row]);
}

template <int rows>
LANE_INLINE void multiply_eight_bit(const uint8_t* weight, Activations x, Ahead ahead,
                                    Floats* total) {
    const Half* scales = (const Half*)weight;
    weight += (size_t(x.groups) * 32 + 63) / 64 * 64;
    for (int group = 0; group < x.groups; group++, weight += 512, to_next_group(x)) {
        fetch(ahead);
        Floats parts[rows];
        multiply_group<rows, kEightBit>(weight, x, parts);
        const Floats scale = from_half(scales + group * kColumns);
#pragma GCC unroll 8
        for (int row = 0; row < rows; row++)
            total[row] = add(total[row], multiply(parts[row], scale));
    }
}

template <int rows, int kind>
__attribute__((noinline)) void multiply_rows(const uint8_t* weight, const Activations& x, Ahead ahead,
                                             float* y, int64_t stride, Write write) {
    Floats total[rows];
    for (int row = 0; row < rows; row++) total[row] = zero();
    if constexpr (kind == kFourBit && rows > kRowsInRegisters)
        multiply_four_bit_in_memory<rows>(weight, x, ahead, total);
    else if constexpr (kind == kFourBit)
        multiply_four_bit<rows>(weight, x, ahead, total);
    else
        multiply_eight_bit<rows>(weight, x, ahead, total);
    for (int row = 0; row < rows; row++, y += stride)
        store(y, write == Write::kAdd ? add(load(y), total[row]) : total[row]);
}

template <int kind>
void multiply_some(int rows, const uint8_t* weight, const Activations& x, Ahead ahead, float* y,
                   int64_t stride, Write write) {
    switch (rows) {
        case 1: return multiply_rows<1, kind>(weight, x, ahead, y, stride, write);
        case 2: return multiply_rows<2, kind>(weight, x, ahead, y, stride, write);
        case 3: return multiply_rows<3, kind>(weight, x, ahead, y, stride, write);
        case 4: return multiply_rows<4, kind>(weight, x, ahead, y, stride, write);
    }
    if constexpr (kRowBlock > 4) {
        switch (rows) {
            case 5: return multiply_rows<5, kind>(weight, x, ahead, y, stride, write);
            case 6: return multiply_rows<6, kind>(weight, x, ahead, y, stride, write);
            case 7: return multiply_rows<7, kind>(weight, x, ahead, y, stride, write);
            case 8: return multiply_rows<8, kind>(weight, x, ahead, y, stride, write);
        }
    }
}

constexpr int kFewRows = 4, kFetchBytes = 2048;

template <int kind>
void multiply_blocks(const Matrix& weight, int first, int last, const Activations& x, int rows,
                     float* y, int64_t stride, Write write, Wanted wanted) {
    const size_t bytes = lanehost::block_bytes(weight);
    const int calls = (rows + kRowBlock - 1) / kRowBlock, lines = int(bytes / 64);
    const int lines_of_call = (lines + calls - 1) / calls;
    const int lines_of_group = (lines_of_call + x.groups - 1) / x.groups;
    int calls_left = (last - first) * calls;
    for (int block = first; block < last; block++) {
        const uint8_t* part = weight.data + block * bytes;
        for (int row = 0; row < rows; row += kRowBlock, calls_left--) {
            const size_t tile = size_t(row / kTileRows) * x.groups * kTileRows;
            const int in_tile = row % kTileRows;
            const Activations from{x.values + tile * kGroup + in_tile * 4,
                                   x.scales + tile * 2 + in_tile, x.weighted_sums + tile + in_tile,
                                   x.sums + tile * 2 + in_tile, x.groups};
            const int left = rows - row;
            // At few rows the memory is what takes long: a fixed way ahead, on into the next block.
            Ahead ahead = rows <= kFewRows
                              ? Ahead{part + kFetchBytes, lines_of_group}
                              : Ahead{part + bytes + size_t(row / kRowBlock) * lines_of_call * 64,
                                      block + 1 < last ? lines_of_group : 0};
            share_wanted(wanted, calls_left, x.groups, ahead);
            multiply_some<kind>(left < kRowBlock ? left : kRowBlock, part, from, ahead,
                                y + row * stride + block * kColumns, stride, write);
        }
    }
}

void product(const Matrix& weight, int first, int last, const Activations& x, int rows, float* y,
             int64_t stride, Write write, Wanted wanted) {
    if (weight.kind == kFourBit)
        multiply_blocks<kFourBit>(weight, first, last, x, rows, y, stride, write, wanted);
    else
        multiply_blocks<kEightBit>(weight, first, last, x, rows, y, stride, write, wanted);
}

template <int rows, int kind>
__attribute__((noinline)) void multiply_rows_finely(const uint8_t* weight, const FineActivations& x,
                                                    Ahead ahead, float* y, int64_t stride) {
    const Half* scales = (const Half*)weight;
    if constexpr (kind == kEightBit) weight += (size_t(x.groups) * 32 + 63) / 64 * 64;
    const int64_t row_values = int64_t(x.groups) * kGroup;
    Floats total[rows];
    for (int row = 0; row < rows; row++) total[row] = zero();
    for (int group = 0; group < x.groups; group++, weight += kind == kFourBit ? 320 : 512) {
        fetch(ahead);
        if constexpr (kind == kFourBit) scales = (const Half*)(weight + 256) - group * kColumns;
        Ints sums[rows];
        dot_finely<rows, kind == kFourBit>(weight, x.values + group * kGroup, row_values, sums);
        const Floats scale = from_half(scales + group * kColumns);
        for (int row = 0; row < rows; row++) {
            const size_t at = size_t(row) * x.groups + group;
            const Floats part = multiply(to_floats(sums[row]), broadcast(x.scales[at]));
            total[row] = add(total[row], multiply(part, scale));
            if constexpr (kind == kFourBit)
                total[row] = add(total[row], multiply(from_half((const Half*)(weight + 288)),
                                                      broadcast(x.weighted_sums[at])));
        }
    }
    for (int row = 0; row < rows; row++) store(y + row * stride, total[row]);
}

template <int kind>
void multiply_blocks_finely(const Matrix& weight, int first, int last, const FineActivations& x,
                            int rows, float* y, int64_t stride) {
    const size_t bytes = lanehost::block_bytes(weight);
    for (int block = first; block < last; block++) {
        const uint8_t* part = weight.data + block * bytes;
        // What the first of the rows fetch is there for the others.
        Ahead ahead{part + kFetchBytes, kind == kFourBit ? 5 : 8};
        for (int row = 0, count; row < rows; row += count) {
            count = row + kFineRows <= rows ? kFineRows : 1;
            const size_t groups = size_t(row) * x.groups;
            const FineActivations from{x.values + groups * kGroup, x.scales + groups,
                                       x.weighted_sums + groups, x.groups};
            float* to = y + row * stride + block * kColumns;
            if (count == 1)
                multiply_rows_finely<1, kind>(part, from, ahead, to, stride);
            else
                multiply_rows_finely<kFineRows, kind>(part, from, ahead, to, stride);
            ahead.lines = 0;
        }
    }
}

void product_finely(const Matrix& weight, int first, int last, const FineActivations& x, int rows,
                    float* y, int64_t stride) {
    if (weight.kind == kFourBit)
        multiply_blocks_finely<kFourBit>(weight, first, last, x, rows, y, stride);
    else
        multiply_blocks_finely<kEightBit>(weight, first, last, x, rows, y, stride);
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
}  // namespace
