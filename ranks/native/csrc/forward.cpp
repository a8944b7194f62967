// A step from token ids to logits in one call. What Python would do between calls it does with
// cold caches, since a step has just read all weights: each line of it takes as long as ten.
#include <cstring>

#include "model.h"

namespace lanehost {
namespace {

// A row of Q8_0: for each group its scale, a Half, and then its weights.
constexpr int kStoredGroup = 2 + kGroup;
constexpr int kWordsBefore = 4;

float value_of(Half half) {
    const uint32_t sign = uint32_t(half & 0x8000) << 16;
    uint32_t exponent = (half >> 10) & 0x1f, mantissa = half & 0x3ff;
    if (exponent == 0) {  // zero, or too small for an exponent: mantissa * 2^-24
        const float magnitude = float(mantissa) * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    exponent = exponent == 0x1f ? 0xff : exponent + 112;
    const uint32_t bits = sign | exponent << 23 | mantissa << 13;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

bool is_within(const int64_t* values, int64_t count, int64_t low, int64_t high) {
    for (int64_t n = 0; n < count; n++)
        if (values[n] < low || values[n] >= high) return false;
    return true;
}

}  // namespace

void look_up(const uint8_t* row, int groups, float* y) {
    for (int group = 0; group < groups; group++, row += kStoredGroup, y += kGroup) {
        Half half;
        std::memcpy(&half, row, sizeof half);
        const float scale = value_of(half);
        const int8_t* weights = reinterpret_cast<const int8_t*>(row) + sizeof half;
        for (int n = 0; n < kGroup; n++) y[n] = scale * float(weights[n]);
    }
}

// rows, lanes, draws, blocks; then as many positions, token ids, first rows of lanes and the
// number of rows, begins of lanes' blocks, rows that draw, blocks.
bool Words::read(const int64_t* words, int64_t count) {
    if (count < kWordsBefore || !is_within(words, kWordsBefore, 0, count)) return false;
    rows = words[0], lanes = words[1], draws = words[2], blocks = words[3];
    if (kWordsBefore + 2 * rows + 2 * lanes + 1 + draws + blocks != count) return false;
    positions = words + kWordsBefore;
    token_ids = positions + rows;
    lane_rows = token_ids + rows;
    table_at = lane_rows + lanes + 1;
    draw_rows = table_at + lanes;
    tables = draw_rows + draws;
    return true;
}

bool Words::fit(const Frame& frame) const {
    if (rows == 0 || lanes == 0 || lane_rows[0] != 0 || lane_rows[lanes] != rows) return false;
    if (!is_within(positions, rows, 0, frame.num_angles) ||
        !is_within(token_ids, rows, 0, frame.table_rows) ||
        !is_within(draw_rows, draws, 0, rows) || !is_within(tables, blocks, 0, frame.num_blocks))
        return false;
    for (int64_t lane = 0; lane < lanes; lane++) {
        const int64_t first = lane_rows[lane], last = lane_rows[lane + 1];
        const int64_t end = lane + 1 < lanes ? table_at[lane + 1] : blocks;
        if (first < 0 || first >= last || last > rows || table_at[lane] < 0 || end > blocks) return false;
        for (int64_t row = first; row < last; row++)
            if (positions[row] / frame.pool.block_size >= end - table_at[lane]) return false;
    }
    return true;
}

Outcome Model::forward(const Frame& frame, const Words& words, Exchange* exchange, float* logits) {
    const int hidden = shape_.hidden, half = shape_.head_dim / 2, groups = hidden / kGroup;
    const size_t rows = size_t(words.rows);
    float* x = reinterpret_cast<float*>(x_.reserve(rows * hidden * 4));
    float* cos = reinterpret_cast<float*>(cos_.reserve(rows * half * 4));
    float* sin = reinterpret_cast<float*>(sin_.reserve(rows * half * 4));
    for (size_t row = 0; row < rows; row++) {
        look_up(frame.table + words.token_ids[row] * groups * kStoredGroup, groups, x + row * hidden);
        const size_t at = size_t(words.positions[row]) * half;
        std::memcpy(cos + row * half, frame.cos + at, size_t(half) * 4);
        std::memcpy(sin + row * half, frame.sin + at, size_t(half) * 4);
    }
    positions_.assign(words.positions, words.positions + words.rows);
    lane_rows_.assign(words.lane_rows, words.lane_rows + words.lanes + 1);
    const Step step{int32_t(words.rows), int32_t(words.lanes), positions_.data(), lane_rows_.data(),
                    words.tables, words.table_at, cos, sin, frame.pool};
    const Outcome outcome = run(step, x, exchange);
    if (outcome != kDone || words.draws == 0) return outcome;
    const float* drawing = x;
    if (words.draws < words.rows) {
        float* gathered = reinterpret_cast<float*>(drawing_.reserve(size_t(words.draws) * hidden * 4));
        for (int64_t n = 0; n < words.draws; n++)
            std::memcpy(gathered + n * hidden, x + words.draw_rows[n] * hidden, size_t(hidden) * 4);
        drawing = gathered;
    }
    head(drawing, frame.norm, frame.head, int(words.draws), logits);
    return outcome;
}

}  // namespace lanehost
