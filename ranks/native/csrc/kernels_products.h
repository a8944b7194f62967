// Products of blocks of weights with rows of activations; included after `kernels_body.h`.
#pragma once

namespace {
using lanehost::kColumns;
using lanehost::kEightBit;
using lanehost::kFourBit;
using lanehost::Matrix;
using lanehost::Wanted;
using lanehost::Write;

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

constexpr int kFewRows = 4;

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
                                      lines_of_group};
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
}  // namespace
