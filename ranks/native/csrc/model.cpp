#include "model.h"

#include <algorithm>
#include <cstring>

namespace lanehost {
namespace {

constexpr int kUnit = 2 * kColumns;  // MLP columns that are quantized together: one group

constexpr int kLayerStages = 12;  // with two exchanges of two stages
constexpr int kPiecesEach = 4;  // of a stage, for each member: some may come late

int tiles(int rows) { return (rows + kTileRows - 1) / kTileRows; }

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
    // Tile after tile: the rows of one share lines, which two members would write in turn.
    in_parts(turn, tiles(rows), [&](Range part) {
        const int last = std::min(part.last * kTileRows, rows);
        for (int row = part.first * kTileRows; row < last; row++) {
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

void Model::draw(const float* logits, int width, const int32_t* rows, const Draw* draws, int count,
                 int64_t* ids) {
    samplers_.resize(size_t(team_.size()));
    on_team(1, [&](Turn turn) {
        Sampler& sampler = samplers_[size_t(turn.member)];
        team_.share(turn, count, [&](int n) {
            const float* row = logits + size_t(rows[n]) * width;
            ids[n] = kernels_.likeliest(row, width);
            if (draws[n].temperature > 0 && ids[n] >= 0) ids[n] = sampler.draw(row, width, draws[n]);
        });
    });
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
