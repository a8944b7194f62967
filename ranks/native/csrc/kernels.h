// What every instruction set provides, and how its operands lie in memory.
//
// Laws: all sets give the same bits. Products are sums of integers, exact in any order;
// what is floating point is added and multiplied one by one (no fused multiply-add) in an
// order that depends on the one row alone, not on its neighbours, threads or sets.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lanehost {

using Half = uint16_t;  // IEEE 754 binary16

constexpr int kGroup = 32;    // inputs whose weights share a scale
constexpr int kHalfGroup = 16;  // activations that share a scale
constexpr int kColumns = 16;  // outputs of a block of a matrix
constexpr int kTileRows = 8;  // rows whose activations lie together

// Rows of int8 activations, eight rows to a tile, a scale for each half of a group.
// Value k of row r of a tile lies at (k / 4) * 32 + r * 4 + k % 4; what belongs to group g,
// or to half h, of row r lies at g * 8 + r, or at h * 8 + r.
struct Activations {
    int8_t* values;
    float* scales;         // of halves
    float* weighted_sums;  // of groups: the sum of what their values stand for
    int32_t* sums;         // of the values of halves
    int32_t groups;
};

// Rows of activations in fifteen bits, one row after the other, a scale for each group.
struct FineActivations {
    int16_t* values;
    float* scales;
    float* weighted_sums;  // the sum of what the values of a group stand for
    int32_t groups;
};
constexpr float kFinest = 16383.0f;  // the greatest value: 127 times it, 32 times, is an int32

enum MatrixKind : int32_t { kFourBit = 4, kEightBit = 8 };

// A weight [outputs, inputs] in blocks of 16 outputs. The 16 columns of a block lie side by
// side, four inputs of each: 64 bytes for four inputs.
//   kFourBit, for each group: 4 x 64 bytes (low halves: inputs 0-3, 8-11, ...; high halves:
//   4-7, 12-15, ...), 16 scales, 16 minimums, both Half.  weight = scale * q + minimum
//   kEightBit: the Half scales of all groups, padded to 64 bytes, then for each group
//   8 x 64 signed bytes.  weight = scale * q
struct Matrix {
    const uint8_t* data;
    int32_t kind;
    int32_t outputs;  // a multiple of 16
    int32_t inputs;   // a multiple of 32
};

// Internal, and never called: a shared copy could be that of another set.
static inline __attribute__((always_inline)) size_t block_bytes(const Matrix& matrix) {
    const size_t groups = matrix.inputs / kGroup;
    if (matrix.kind == kFourBit) return groups * 320;
    return (groups * 32 + 63) / 64 * 64 + groups * 512;
}

// Queries that look at one KV head of one layer, all of one lane.
struct AttentionTask {
    const Half* keys;    // [blocks][head_dim][block_size]
    const Half* values;  // [blocks][block_size][head_dim]
    const int64_t* table;
    int32_t block_size;
    int32_t head_dim;
    int32_t num_queries;
    const float* const* queries;  // head_dim values each, scaled already
    float* const* results;
    const int32_t* starts;  // the first position that a query sees
    const int32_t* stops;   // one past the last
    float* scores;          // scratch, kMaxQueries * stride values
    int64_t stride;         // at least the last position, rounded up to 16
};
constexpr int kMaxQueries = 8;

enum class Write { kSet, kAdd };

// Memory that is wanted soon: runs of cache lines. A product has it fetched while it computes, a
// few lines with each group, since memory is idle then; what is fetched changes no bit.
struct Wanted {
    const uint8_t* base;
    const int64_t* runs;  // where runs begin, in bytes from the base
    int32_t left;
    int32_t lines;  // of a run
};

struct KernelSet {
    const char* name;
    // Quantize groups [first, last) of one row; x points at value 0 of group `first`.
    void (*quantize)(const float* x, const Activations& to, int row, int first, int last);
    // y[row][column] for blocks [first, last); y points at column 0 of block 0.
    void (*product)(const Matrix& weight, int first, int last, const Activations& x, int rows,
                    float* y, int64_t stride, Write write, Wanted wanted);
    // The same for rows in fifteen bits.
    void (*quantize_finely)(const float* x, const FineActivations& to, int row);
    void (*product_finely)(const Matrix& weight, int first, int last, const FineActivations& x,
                           int rows, float* y, int64_t stride);
    void (*norm)(const float* x, const float* weight, int width, float eps, float* y);
    // Rotate the halves of a head against each other, then multiply by `scale`.
    void (*rotate)(float* head, const float* cos, const float* sin, int head_dim, float scale);
    void (*gate)(const float* gate, const float* up, int count, float* y);
    void (*add)(float* x, const float* y, int count);
    void (*to_half)(const float* x, int count, Half* y);
    void (*attend)(const AttentionTask& task);
    // The first of the greatest of some values; -1 where one of them is no finite number.
    int32_t (*likeliest)(const float* x, int count);
};

const KernelSet* portable_kernels();
const KernelSet* avx2_kernels();    // null where it was not built
const KernelSet* avx512_kernels();  // likewise
const KernelSet* neon_kernels();    // likewise

}  // namespace lanehost
