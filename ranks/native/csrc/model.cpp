#include "model.h"

#include <algorithm>
#include <cstring>

namespace lanehost {
namespace {

constexpr int kLookRows = 8;      // rows of a prompt that attend in one go
constexpr int kLookQueries = 64;  // queries of one call of the kernel
constexpr int kUnit = 2 * kColumns;  // MLP columns that are quantized together: one group

constexpr int kLayerStages = 12;  // with two exchanges of two stages
constexpr int64_t kWantedBytes = 4 << 20;  // of a layer: what a cache holds of keys and values
constexpr int kPiecesEach = 4;  // of a stage, for each member: some may come late

int tiles(int rows) { return (rows + kTileRows - 1) / kTileRows; }
int64_t round_up(int64_t count, int64_t multiple) {
    return (count + multiple - 1) / multiple * multiple;
}

}  // namespace

uint8_t* Model::Buffer::reserve(size_t needed) {
    if (needed > size) {
        bytes.reset(new uint8_t[needed + 64]);
        // Rows that fill up a tile are computed with: they must hold numbers.
        std::memset(bytes.get(), 0, needed + 64);
        size = needed;
    }
    return reinterpret_cast<uint8_t*>(round_up(int64_t(bytes.get()), 64));
}

float* Model::Buffer::floats() const {
    return reinterpret_cast<float*>(round_up(int64_t(bytes.get()), 64));
}

void Model::Quantized::reserve(int rows, int inputs) {
    const size_t groups = inputs / kGroup, count = size_t(tiles(rows)) * groups * kTileRows;
    of.values = reinterpret_cast<int8_t*>(values.reserve(count * kGroup));
    of.scales = reinterpret_cast<float*>(scales.reserve(count * 8));
    of.weighted_sums = reinterpret_cast<float*>(weighted_sums.reserve(count * 4));
    of.sums = reinterpret_cast<int32_t*>(sums.reserve(count * 8));
    of.groups = int32_t(groups);
}

Model::Model(const Shape& shape, const Layer* layers, int num_layers, const KernelSet& kernels,
             int num_threads)
    : shape_(shape),
      layers_(layers, layers + num_layers),
      kernels_(kernels),
      team_(num_threads),
      qkv_width_((shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim) {
    for (int shard = 0; shard < shape.num_shards; shard++) {
        attended_width_ += shape.head_parts[shard] * shape.head_dim;
        mlp_width_ += shape.mlp_parts[shard];
    }
    const int64_t hidden = shape.hidden;
    output_end_ = hidden * attended_width_;
    gates_end_ = output_end_ + hidden * mlp_width_ * 2;
    down_end_ = gates_end_ + hidden * mlp_width_;
    products_end_ = down_end_ + hidden * qkv_width_;
}

// All memory of a step, before its team starts.
void Model::reserve(int num_rows) {
    const size_t rows = size_t(num_rows);
    input_.reserve(num_rows, shape_.hidden);
    for (int shard = 0; shard < shape_.num_shards; shard++) {
        heads_[shard].reserve(num_rows, shape_.head_parts[shard] * shape_.head_dim);
        columns_[shard].reserve(num_rows, shape_.mlp_parts[shard]);
    }
    qkv_.reserve(rows * qkv_width_ * 4);
    shares_.reserve(rows * shape_.hidden * 4);
    attended_.reserve(rows * attended_width_ * 4);
    normed_.reserve(size_t(team_.size()) * shape_.hidden * 4);
    gates_.reserve(size_t(team_.size()) * rows * 2 * kUnit * 4);
}

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
    const int64_t block_bytes = pool_.block_size * shape_.head_dim * int64_t(sizeof(Half));
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
    const int64_t block_bytes = pool_.block_size * shape_.head_dim * int64_t(sizeof(Half));
    return {reinterpret_cast<const uint8_t*>(pool_.data + int64_t(layer) * pool_.layer_stride),
            wanted_runs_.data() + first, int32_t(last - first), int32_t((block_bytes + 63) / 64)};
}

template <typename Work>
void Model::on_team(int num_stages, Work work) {
    watch_.start();
    team_.run([](void* context, Turn turn) { (*static_cast<Work*>(context))(turn); }, &work,
              num_stages);
}

template <typename Piece>
void Model::in_parts(Turn& turn, int total, const Piece& piece) {
    const int count = team_.size() == 1 ? 1 : std::min(total, team_.size() * kPiecesEach);
    team_.share(turn, count, [&](int n) {
        piece(Range{int(int64_t(total) * n / count), int(int64_t(total) * (n + 1) / count)});
    });
}

Outcome Model::run(const Step& step, float* x, Exchange* exchange) {
    watch_.reset();
    reserve(step.rows);
    plan_looks(step);
    plan_wanted(step);
    exchange_ = exchange;
    outcome_.store(kDone);
    const Target to{exchange ? nullptr : x, shares_.floats()};
    on_team(int(layers_.size()) * kLayerStages, [&](Turn turn) {
        for (int number = 0; number < int(layers_.size()); number++) {
            const Layer& layer = layers_[number];
            attention(step, number, x, to, turn);
            if (!add_shares(layer.output_bias, step.rows, x, turn)) return;
            mlp(number, x, step.rows, to, turn);
            if (!add_shares(layer.down_bias, step.rows, x, turn)) return;
        }
    });
    return outcome_.load();
}

// The shares of all ranks to the rows; false when another rank is lost, on every member.
bool Model::add_shares(const float* bias, int rows, float* x, Turn& turn) {
    if (exchange_ == nullptr) return true;
    float* total = shares_.floats();
    const int hidden = shape_.hidden;
    team_.share(turn, 1, [&](int) {
        outcome_.store(exchange_->all_reduce(total, int64_t(rows) * hidden));
    });
    mark(turn, kExchange);
    if (outcome_.load() != kDone) return false;
    in_parts(turn, rows, [&](Range part) {
        for (int row = part.first; row < part.last; row++) {
            const size_t begin = size_t(row) * hidden;
            if (bias) kernels_.add(total + begin, bias, hidden);
            kernels_.add(x + begin, total + begin, hidden);
        }
    });
    mark(turn, kProducts);
    return true;
}

void Model::attention_half(const Step& step, int layer, const float* x, float* share) {
    if (layer == 0) watch_.reset();
    reserve(step.rows);
    plan_looks(step);
    wanted_runs_.clear();
    on_team(kLayerStages, [&](Turn turn) { attention(step, layer, x, {nullptr, share}, turn); });
}

void Model::mlp_half(int layer, const float* x, int rows, float* share) {
    reserve(rows);
    on_team(kLayerStages, [&](Turn turn) { mlp(layer, x, rows, {nullptr, share}, turn); });
}

void Model::attention(const Step& step, int number, const float* x, Target to, Turn& turn) {
    const Layer& layer = layers_[number];
    const int rows = step.rows;
    quantize_norm(x, layer.input_norm, rows, turn);
    mark(turn, kNorm);
    in_parts(turn, qkv_width_ / kColumns, [&](Range blocks) { multiply_qkv(layer, rows, blocks); });
    mark(turn, kProducts);
    in_parts(turn, rows, [&](Range part) { rotate_and_keep(step, layer, number, part); });
    mark(turn, kRotate);
    team_.share(turn, int(looks_.size()), [&](int n) {
        attend_look(step, layer, number, looks_[n], scores_.floats() + turn.member * member_scores_);
        quantize_heads(looks_[n]);
    });
    mark(turn, kAttention);
    in_parts(turn, shape_.hidden / kColumns, [&](Range blocks) {
        sum_shards(layer.output, layer.output_bias, heads_, rows, to, blocks, number + 1,
                   {0, output_end_});
    });
    mark(turn, kProducts);
}

void Model::mlp(int number, const float* x, int rows, Target to, Turn& turn) {
    const Layer& layer = layers_[number];
    quantize_norm(x, layer.mlp_norm, rows, turn);
    mark(turn, kNorm);
    in_parts(turn, mlp_width_ / kUnit, [&](Range units) {
        float* gates = gates_.floats() + size_t(turn.member) * rows * 2 * kUnit;
        gate_and_quantize(layer, rows, units, gates);
    });
    in_parts(turn, shape_.hidden / kColumns, [&](Range blocks) {
        sum_shards(layer.down, layer.down_bias, columns_, rows, to, blocks, number + 1,
                   {gates_end_, down_end_});
    });
    mark(turn, kProducts);
}

void Model::quantize_norm(const float* x, const float* weight, int rows, Turn& turn) {
    float* normed = normed_.floats() + size_t(turn.member) * shape_.hidden;
    in_parts(turn, rows, [&](Range part) {
        for (int row = part.first; row < part.last; row++) {
            kernels_.norm(x + size_t(row) * shape_.hidden, weight, shape_.hidden, shape_.norm_eps,
                          normed);
            kernels_.quantize(normed, input_.of, row, 0, input_.of.groups);
        }
    });
}

void Model::multiply_qkv(const Layer& layer, int rows, Range own) {
    float* to = qkv_.floats();
    int begin = 0;  // the first block of a matrix, counted over all three
    for (const Matrix& matrix : layer.qkv) {
        const int blocks = matrix.outputs / kColumns;
        const int first = std::max(own.first - begin, 0), last = std::min(own.last - begin, blocks);
        const Share share{down_end_ + int64_t(begin + first) * kColumns * shape_.hidden,
                          down_end_ + int64_t(begin + last) * kColumns * shape_.hidden};
        if (first < last)
            kernels_.product(matrix, first, last, input_.of, rows, to + begin * kColumns, qkv_width_,
                             Write::kSet, wanted_of(number_of(layer), share));
        begin += blocks;
    }
    if (layer.qkv_bias == nullptr) return;
    const int at = own.first * kColumns, count = (own.last - own.first) * kColumns;
    for (int row = 0; row < rows; row++)
        kernels_.add(to + size_t(row) * qkv_width_ + at, layer.qkv_bias + at, count);
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
    int shard = 0, first_head = 0;
    while (look.kv_head * per_head >= first_head + shape_.head_parts[shard])
        first_head += shape_.head_parts[shard++];
    const int first = (look.kv_head * per_head - first_head) * dim / kGroup;
    for (int row = look.first_row; row < look.first_row + look.rows; row++)
        kernels_.quantize(
            attended_.floats() + size_t(row) * attended_width_ + look.kv_head * per_head * dim,
            heads_[shard].of, row, first, first + per_head * dim / kGroup);
}

// One group of columns after the other, so that gate and up stay in the cache.
void Model::gate_and_quantize(const Layer& layer, int rows, Range own, float* gates) {
    float* ups = gates + kUnit;
    const int first_units = shape_.mlp_parts[0] / kUnit;
    for (int unit = own.first; unit < own.last; unit++) {
        const int block = unit * 2, column = unit * kUnit;
        const Share share = Share{output_end_, gates_end_}.part(unit, mlp_width_ / kUnit);
        kernels_.product(layer.gate, block, block + 2, input_.of, rows, gates - column, 2 * kUnit,
                         Write::kSet, wanted_of(number_of(layer) + 1, share.part(0, 2)));
        kernels_.product(layer.up, block, block + 2, input_.of, rows, ups - column, 2 * kUnit,
                         Write::kSet, wanted_of(number_of(layer) + 1, share.part(1, 2)));
        const int shard = unit >= first_units, group = shard ? unit - first_units : unit;
        for (int row = 0; row < rows; row++) {
            float *gate = gates + size_t(row) * 2 * kUnit, *up = gate + kUnit;
            if (layer.gate_bias) kernels_.add(gate, layer.gate_bias + column, kUnit);
            if (layer.up_bias) kernels_.add(up, layer.up_bias + column, kUnit);
            kernels_.gate(gate, up, kUnit, gate);
            kernels_.quantize(gate, columns_[shard].of, row, group, group + 1);
        }
    }
}

void Model::sum_shards(const Matrix* parts, const float* bias, const Quantized* from, int rows,
                       Target to, Range own, size_t next_layer, Share share) {
    const int hidden = shape_.hidden, blocks = hidden / kColumns;
    const Share here{share.part(own.first, blocks).from, share.part(own.last - 1, blocks).to};
    for (int shard = 0; shard < shape_.num_shards; shard++)
        kernels_.product(parts[shard], own.first, own.last, from[shard].of, rows, to.share, hidden,
                         shard ? Write::kAdd : Write::kSet,
                         wanted_of(next_layer, here.part(shard, shape_.num_shards)));
    if (to.rows == nullptr) return;
    const int at = own.first * kColumns, count = (own.last - own.first) * kColumns;
    for (int row = 0; row < rows; row++) {
        const size_t begin = size_t(row) * hidden + at;
        if (bias) kernels_.add(to.share + begin, bias + at, count);
        kernels_.add(to.rows + begin, to.share + begin, count);
    }
}

void Model::add_total(const float* total, const float* bias, int rows, float* x) {
    float* sum = reinterpret_cast<float*>(normed_.reserve(size_t(team_.size()) * shape_.hidden * 4));
    for (int row = 0; row < rows; row++, total += shape_.hidden, x += shape_.hidden) {
        std::memcpy(sum, total, size_t(shape_.hidden) * 4);
        if (bias) kernels_.add(sum, bias, shape_.hidden);
        kernels_.add(x, sum, shape_.hidden);
    }
}

void Model::head(const float* x, const float* norm, const Matrix& weight, int rows, float* y) {
    const int hidden = shape_.hidden, groups = hidden / kGroup;
    normed_.reserve(size_t(team_.size()) * hidden * 4);
    const FineActivations fine{
        reinterpret_cast<int16_t*>(fine_values_.reserve(size_t(rows) * hidden * 2)),
        reinterpret_cast<float*>(fine_scales_.reserve(size_t(rows) * groups * 4)),
        reinterpret_cast<float*>(fine_sums_.reserve(size_t(rows) * groups * 4)), groups};
    on_team(2, [&](Turn turn) {
        float* normed = normed_.floats() + size_t(turn.member) * hidden;
        in_parts(turn, rows, [&](Range part) {
            for (int row = part.first; row < part.last; row++) {
                kernels_.norm(x + size_t(row) * hidden, norm, hidden, shape_.norm_eps, normed);
                kernels_.quantize_finely(normed, fine, row);
            }
        });
        in_parts(turn, weight.outputs / kColumns, [&](Range blocks) {
            kernels_.product_finely(weight, blocks.first, blocks.last, fine, rows, y,
                                    weight.outputs);
        });
        mark(turn, kHead);
    });
}

}  // namespace lanehost
