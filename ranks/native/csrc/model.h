// This rank's part of a llama-like model, and one step of it.
//
// A step is run by a team, stage after stage. Which member computes which piece of a stage
// changes no bit of the result.
//
//   x -- norm -- qkv -- rotate, KV -- attend -- output (sum over shards) -- + x
//     -- norm -- gate, up -- silu * -- down (sum over shards) -- + x
//
// Ranks of one host add their shares within the step: the sum over shards is then that of this
// rank's, and one member adds it to those of the other ranks, in the order of ranks.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "exchange.h"
#include "kernels.h"
#include "sampler.h"
#include "team.h"
#include "watch.h"

namespace lanehost {

constexpr int kMaxShards = 2;

inline int64_t round_up(int64_t count, int64_t multiple) {
    return (count + multiple - 1) / multiple * multiple;
}

// The structs below are laid out as `ranks/native/library.py` writes them.
struct Shape {
    int32_t hidden;
    int32_t num_heads;
    int32_t num_kv_heads;
    int32_t head_dim;
    int32_t num_shards;               // held by this rank
    int32_t head_parts[kMaxShards];   // query heads of each held shard
    int32_t mlp_parts[kMaxShards];    // MLP columns of each held shard
    float norm_eps;
    float score_scale;
};

struct Layer {
    const float* input_norm;
    const float* mlp_norm;
    const float* query_norm;  // or null, as the next and the biases
    const float* key_norm;
    Matrix qkv[3];
    const float* qkv_bias;
    Matrix output[kMaxShards];
    Matrix gate, up;
    const float* gate_bias;
    const float* up_bias;
    Matrix down[kMaxShards];
    const float* output_bias;
    const float* down_bias;
    int64_t window;  // positions that a token sees; 0 sees all
};

// Keys and values: [layers][keys, values][KV heads][blocks][...], a block of keys is
// [head_dim][positions], one of values [positions][head_dim].
struct Pool {
    Half* data;
    int64_t layer_stride;  // Halves from one layer to the next
    int64_t part_stride;   // from keys to values
    int64_t head_stride;   // from one KV head to the next
    int64_t block_size;
    int64_t block_bytes(int head_dim) const { return block_size * head_dim * int64_t(sizeof(Half)); }
};

// The rows of a step. Rows of one lane lie one after another, in the order of positions.
struct Step {
    int32_t rows;
    int32_t num_lanes;
    const int32_t* positions;   // [rows]
    const int32_t* lane_rows;   // [lanes + 1]: the first row of each lane
    const int64_t* tables;      // blocks of all lanes, one lane after another
    const int64_t* table_at;    // [lanes]: where a lane's blocks begin
    const float* cos;           // [rows][head_dim / 2]
    const float* sin;
    Pool pool;
};

// What a step needs beside its rows, as long as the pool is the same.
struct Frame {
    const uint8_t* table;  // of Q8_0, a row for each token id
    int64_t table_rows;
    const float* cos;  // [num_angles][head_dim / 2], by position
    const float* sin;
    int64_t num_angles;
    const float* norm;
    Matrix head;
    Pool pool;
    int64_t num_blocks;
};

// The rows of a step as Python writes them; see forward.cpp. Rows that draw are in order, so if
// there are as many of them as rows, they are all rows.
struct Words {
    int64_t rows, lanes, draws, blocks;
    const int64_t *positions, *token_ids, *lane_rows, *table_at, *draw_rows, *tables;
    // False when these are not the numbers that they say they are.
    bool read(const int64_t* words, int64_t count);
    // Whether all that they name is there, and the blocks of each lane hold its rows.
    bool fit(const Frame& frame) const;
};

// A row of a table of Q8_0 as floats.
void look_up(const uint8_t* row, int groups, float* y);

class Model {
   public:
    Model(const Shape& shape, const Layer* layers, int num_layers, const KernelSet& kernels,
          int num_threads);

    // All layers; x [rows][hidden] is read and written. Without an exchange for a rank that holds
    // all shards. When another rank is lost the rest is not run, and x is worth nothing.
    Outcome run(const Step& step, float* x, Exchange* exchange);
    // All of a step: token ids to logits [draws][outputs of the head].
    Outcome forward(const Frame& frame, const Words& words, Exchange* exchange, float* logits);
    // One half of a layer; writes this rank's share of the sum over shards.
    void attention_half(const Step& step, int layer, const float* x, float* share);
    void mlp_half(int layer, const float* x, int rows, float* share);
    // The other end of a half: x + (total + bias).
    void add_total(const float* total, const float* bias, int rows, float* x);
    // y = weight times norm(x), whose rows are taken in fifteen bits.
    void head(const float* x, const float* norm, const Matrix& weight, int rows, float* y);
    // ids[n]: what row rows[n] of logits [...][width], which must be finite, draws.
    void draw(const float* logits, int width, const int32_t* rows, const Draw* draws, int count,
              int64_t* ids);
    // Nanoseconds of each part of the last step, up to now.
    const Watch& watch() const { return watch_; }
    // Rises while a call computes, and stands still when it hangs; from any thread.
    uint64_t num_stages() const { return team_.num_stages(); }

   private:
    struct Buffer {
        std::unique_ptr<uint8_t[]> bytes;
        size_t size = 0;
        uint8_t* reserve(size_t needed);  // on a line of the cache
        float* floats() const;
    };
    struct Quantized {
        Buffer values, scales, weighted_sums, sums;
        Activations of{};
        void reserve(int rows, int inputs);
    };
    // Some rows of one lane, for one KV head.
    struct Look {
        int lane, first_row, rows, kv_head;
    };
    struct Range {
        int first, last;
    };
    // Where the sum over shards goes: added to the rows, or left as this rank's share.
    struct Target {
        float* rows;
        float* share;
    };

    // A part of the products from one attention to the next, in weights: output, gate and up,
    // down, then the next layer's qkv.
    struct Share {
        int64_t from, to;
        Share part(int number, int count) const {
            return {from + (to - from) * number / count, from + (to - from) * (number + 1) / count};
        }
    };

    void reserve(int rows);
    void plan_looks(const Step& step);
    void plan_wanted(const Step& step);
    // What the attention of a layer will read, as much of it as belongs to a share of the products.
    Wanted wanted_of(size_t layer, Share share) const;
    size_t number_of(const Layer& layer) const { return &layer - layers_.data(); }
    bool add_shares(const float* bias, int rows, float* x, Turn& turn);
    void attention(const Step& step, int number, const float* x, Target to, Turn& turn);
    void mlp(int number, const float* x, int rows, Target to, Turn& turn);
    void quantize_norm(const float* x, const float* weight, int rows, Turn& turn);
    void multiply_qkv(const Layer& layer, int rows, Range part);
    void rotate_and_keep(const Step& step, const Layer& layer, int number, Range rows);
    void attend_look(const Step& step, const Layer& layer, int number, const Look& look,
                     float* scores);
    void quantize_heads(const Look& look);
    void gate_and_quantize(const Layer& layer, int rows, Range units, float* gates);
    void sum_shards(const Matrix* parts, const float* bias, const Quantized* from, int rows,
                    Target to, Range blocks, size_t next_layer, Share share);
    // The next stage of a turn: `total` units in ranges, each to whoever is free.
    template <typename Piece>
    void in_parts(Turn& turn, int total, const Piece& piece);
    template <typename Work>
    void on_team(int num_stages, Work work);
    // A stage has ended; what it took is a part of the step.
    void mark(const Turn& turn, Part part) {
        if (turn.member == 0) watch_.mark(part);
    }

    const Shape shape_;
    const std::vector<Layer> layers_;
    const KernelSet& kernels_;
    Team team_;
    Watch watch_;
    Exchange* exchange_ = nullptr;  // of the step that runs
    std::atomic<Outcome> outcome_{kDone};
    int attended_width_ = 0, mlp_width_ = 0, qkv_width_;
    int64_t output_end_, gates_end_, down_end_, products_end_;  // see Share
    std::vector<Look> looks_;
    Pool pool_{};                      // of the step that runs
    std::vector<int64_t> wanted_runs_;  // bytes from the begin of a layer
    std::vector<Sampler> samplers_;  // of members
    int64_t scores_stride_ = 0;
    int64_t member_scores_ = 0;  // floats of one member
    Quantized input_, heads_[kMaxShards], columns_[kMaxShards];
    std::vector<int32_t> positions_, lane_rows_;  // of `forward`
    Buffer x_, cos_, sin_, drawing_;
    Buffer qkv_, shares_, normed_, gates_, attended_, scores_, fine_values_, fine_scales_, fine_sums_;
};

}  // namespace lanehost
