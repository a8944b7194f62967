// Attention of a step: who looks at what, and what of it is fetched before.
#include <algorithm>

#include "model.h"

namespace lanehost {
namespace {

constexpr int kLookRows = 8;      // rows of a prompt that attend in one go
constexpr int kLookQueries = 64;  // queries of one call of the kernel
constexpr int64_t kWantedBytes = 4 << 20;  // of a layer: what a cache holds of keys and values

}  // namespace

// Who attends to what, and room for the scores.
void Model::plan_looks(const Step& step) {
    int longest = 0;
    looks_.clear();
    for (int lane = 0; lane < step.num_lanes; lane++) {
        const int end = step.lane_rows[lane + 1];
        longest = std::max(longest, step.positions[end - 1] + 1);
        // The last rows see most: they come first, so that no member is left alone with them.
        for (int row = step.lane_rows[lane] + (end - step.lane_rows[lane] - 1) / kLookRows * kLookRows;
             row >= step.lane_rows[lane]; row -= kLookRows)
            for (int head = 0; head < shape_.num_kv_heads; head++)
                looks_.push_back({lane, row, std::min(kLookRows, end - row), head});
    }
    scores_stride_ = round_up(longest, 16) + 16;  // a multiple of 4 KiB would alias
    member_scores_ = scores_stride_ * kMaxQueries;
    scores_.reserve(size_t(team_.size()) * member_scores_ * 4);
}

// The blocks of all lanes, keys beside values, as far as they fit what a cache may hold of them.
// Prompts need none: their rows look at the same blocks again and again.
void Model::plan_wanted(const Step& step) {
    pool_ = step.pool;
    wanted_runs_.clear();
    if (step.rows > 2 * step.num_lanes) return;
    const int64_t block_bytes = pool_.block_bytes(shape_.head_dim);
    for (int lane = 0; lane < step.num_lanes; lane++) {
        const int64_t last = step.positions[step.lane_rows[lane + 1] - 1] / pool_.block_size;
        for (int head = 0; head < shape_.num_kv_heads; head++)
            for (int64_t at = 0; at <= last; at++) {
                const int64_t block = step.tables[step.table_at[lane] + at];
                const int64_t keys =
                    head * pool_.head_stride * int64_t(sizeof(Half)) + block * block_bytes;
                wanted_runs_.push_back(keys);
                wanted_runs_.push_back(keys + pool_.part_stride * int64_t(sizeof(Half)));
                if (int64_t(wanted_runs_.size()) * block_bytes >= kWantedBytes) return;
            }
    }
}

Wanted Model::wanted_of(size_t layer, Share share) const {
    const int64_t count = wanted_runs_.size();
    if (count == 0 || layer == layers_.size() || layers_[layer].window) return {};
    const int64_t first = count * share.from / products_end_, last = count * share.to / products_end_;
    const int64_t block_bytes = pool_.block_bytes(shape_.head_dim);
    return {reinterpret_cast<const uint8_t*>(pool_.data + int64_t(layer) * pool_.layer_stride),
            wanted_runs_.data() + first, int32_t(last - first), int32_t((block_bytes + 63) / 64)};
}

void Model::rotate_and_keep(const Step& step, const Layer& layer, int number, Range own) {
    const int dim = shape_.head_dim;
    const Pool& pool = step.pool;
    std::vector<Half> halves(dim);
    int lane = 0;
    for (int row = own.first; row < own.last; row++) {
        while (row >= step.lane_rows[lane + 1]) lane++;
        float* head = qkv_.floats() + size_t(row) * qkv_width_;
        const float *cos = step.cos + size_t(row) * dim / 2, *sin = step.sin + size_t(row) * dim / 2;
        for (int i = 0; i < shape_.num_heads; i++, head += dim) {
            if (layer.query_norm) kernels_.norm(head, layer.query_norm, dim, shape_.norm_eps, head);
            kernels_.rotate(head, cos, sin, dim, shape_.score_scale);
        }
        const int64_t size = pool.block_size, position = step.positions[row];
        const int64_t block = step.tables[step.table_at[lane] + position / size];
        for (int i = 0; i < shape_.num_kv_heads; i++, head += dim) {
            if (layer.key_norm) kernels_.norm(head, layer.key_norm, dim, shape_.norm_eps, head);
            kernels_.rotate(head, cos, sin, dim, 1.0f);
            Half* keys = pool.data + number * pool.layer_stride + i * pool.head_stride +
                         block * size * dim;
            kernels_.to_half(head, dim, halves.data());
            for (int d = 0; d < dim; d++) keys[d * size + position % size] = halves[d];
            kernels_.to_half(head + shape_.num_kv_heads * dim, dim,
                             keys + pool.part_stride + position % size * dim);
        }
    }
}

void Model::attend_look(const Step& step, const Layer& layer, int number, const Look& look,
                        float* scores) {
    const int dim = shape_.head_dim, per_head = shape_.num_heads / shape_.num_kv_heads;
    const float* queries[kLookQueries];
    float* results[kLookQueries];
    int32_t starts[kLookQueries], stops[kLookQueries];
    const Half* keys =
        step.pool.data + number * step.pool.layer_stride + look.kv_head * step.pool.head_stride;
    AttentionTask task{keys, keys + step.pool.part_stride, step.tables + step.table_at[look.lane],
                       int32_t(step.pool.block_size), dim, 0, queries, results, starts, stops,
                       scores, scores_stride_};
    for (int row = look.first_row; row < look.first_row + look.rows; row++) {
        const int32_t stop = step.positions[row] + 1;
        for (int i = look.kv_head * per_head; i < (look.kv_head + 1) * per_head; i++) {
            queries[task.num_queries] = qkv_.floats() + size_t(row) * qkv_width_ + i * dim;
            results[task.num_queries] = attended_.floats() + size_t(row) * attended_width_ + i * dim;
            starts[task.num_queries] =
                layer.window ? int32_t(std::max<int64_t>(0, stop - layer.window)) : 0;
            stops[task.num_queries] = stop;
            if (++task.num_queries == kLookQueries) {
                kernels_.attend(task);
                task.num_queries = 0;
            }
        }
    }
    if (task.num_queries) kernels_.attend(task);
}

void Model::quantize_heads(const Look& look) {
    const int dim = shape_.head_dim, per_head = shape_.num_heads / shape_.num_kv_heads;
    const int first_head = look.kv_head * per_head;
    int shard_start = 0;
    for (int shard = 0; shard < shape_.num_shards; shard++) {
        // Two shards may share a KV head: each has the query heads of its own (ADR 27).
        const int shard_stop = shard_start + shape_.head_parts[shard];
        const int begin = std::max(first_head, shard_start);
        const int end = std::min(first_head + per_head, shard_stop);
        for (int row = look.first_row; begin < end && row < look.first_row + look.rows; row++)
            kernels_.quantize(attended_.floats() + size_t(row) * attended_width_ + begin * dim,
                              heads_[shard].of, row, (begin - shard_start) * dim / kGroup,
                              (end - shard_start) * dim / kGroup);
        shard_start = shard_stop;
    }
}

}  // namespace lanehost
