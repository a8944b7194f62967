// Attention over paged keys and values; included after `kernels_body.h`.
//
// Laws: a query's scores are added head value by head value, its weighed values position by
// position, whatever other queries are computed beside it. What a query does not see is not
// added, not even as zero: it may be no number.
#pragma once

namespace {
using lanehost::AttentionTask;
using lanehost::kMaxQueries;

// Keys of 16 positions from `position` on: where they lie, and how far apart head values are.
struct KeyTile {
    const Half* keys;
    int64_t stride;
};

LANE_INLINE KeyTile find_keys(const AttentionTask& task, int position, int last, Half* gathered) {
    const int size = task.block_size;
    const int64_t block_values = int64_t(size) * task.head_dim;
    if (size % 16 == 0)
        return {task.keys + task.table[position / size] * block_values + position % size, size};
    // Small blocks divide 16. What lies past `last` is never looked at.
    for (int at = position; at < position + 16 && at < last; at++) {
        const Half* from = task.keys + task.table[at / size] * block_values + at % size;
        for (int i = 0; i < task.head_dim; i++) gathered[i * 16 + at - position] = from[i * size];
    }
    return {gathered, 16};
}

// Fetch the keys behind these sixteen positions, and the values of these, which are wanted after
// all scores: memory takes longer than what is computed with it.
LANE_INLINE void fetch_ahead(const AttentionTask& task, int position, int last) {
    const int size = task.block_size, lines = size * task.head_dim / 32;
    if (position % size >= 16) return;  // fetched with the block's first
    const int64_t block_values = int64_t(size) * task.head_dim;
    const Half* values = task.values + task.table[position / size] * block_values;
    for (int line = 0; line < lines; line++) __builtin_prefetch(values + line * 32, 0, 3);
    const int next = position + (size > 16 ? size : 16);
    if (next >= last) return;
    const Half* keys = task.keys + task.table[next / size] * block_values;
    for (int line = 0; line < lines; line++) __builtin_prefetch(keys + line * 32, 0, 3);
}

template <int queries>
LANE_INLINE void score(const AttentionTask& task, const float* const* query, float* scores,
                       int first, int last, Half* gathered) {
    for (int position = first / 16 * 16; position < last; position += 16) {
        const KeyTile tile = find_keys(task, position, last, gathered);
        fetch_ahead(task, position, last);
        Floats sums[queries];
        for (int row = 0; row < queries; row++) sums[row] = zero();
        const Half* keys = tile.keys;
        for (int i = 0; i < task.head_dim; i++, keys += tile.stride) {
            const Floats key = from_half(keys);
#pragma GCC unroll 8
            for (int row = 0; row < queries; row++)
                sums[row] = add(sums[row], multiply(broadcast(query[row][i]), key));
        }
        for (int row = 0; row < queries; row++) store(scores + row * task.stride + position, sums[row]);
    }
}

// Turn scores of positions [start, stop) into shares that are not divided yet; gives their sum.
LANE_INLINE float share_out(float* scores, int start, int stop) {
    const Floats least = broadcast(-__builtin_inff());
    Floats greatest = least;
    const int begin = start / 16 * 16;
    for (int at = begin; at < stop; at += 16)
        greatest = greater_of(greatest, choose(start - at, stop - at, load(scores + at), least));
    const Floats top = broadcast(greatest_of(greatest));
    Floats sum = zero();
    for (int at = begin; at < stop; at += 16) {
        const Floats share = choose(start - at, stop - at,
                                    exponential(subtract(load(scores + at), top)), zero());
        sum = add(sum, share);
        store(scores + at, share);
    }
    return sum_of(sum);
}

// Add the values of some positions of one block, weighed, to `vectors` vectors of each result.
template <int queries, int vectors>
LANE_INLINE void weigh_block(const AttentionTask& task, const float* scores, const Half* values,
                             int count, float* const* results, int offset) {
    Floats sums[queries][vectors];
    for (int row = 0; row < queries; row++)
        for (int v = 0; v < vectors; v++) sums[row][v] = load(results[row] + offset + v * 16);
    values += offset;
    for (int i = 0; i < count; i++, values += task.head_dim) {
        Floats value[vectors];
        for (int v = 0; v < vectors; v++) value[v] = from_half(values + v * 16);
#pragma GCC unroll 8
        for (int row = 0; row < queries; row++) {
            const Floats share = broadcast(scores[row * task.stride + i]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                sums[row][v] = add(sums[row][v], multiply(share, value[v]));
        }
    }
    for (int row = 0; row < queries; row++)
        for (int v = 0; v < vectors; v++) store(results[row] + offset + v * 16, sums[row][v]);
}

// Add the values of positions [first, last), weighed, to the results; block by block, so that
// all of a block is used while it is in the cache.
template <int queries>
LANE_INLINE void weigh(const AttentionTask& task, const float* scores, int first, int last,
                       float* const* results) {
    const int size = task.block_size;
    for (int at = first, count; at < last; at += count) {
        const int in_block = at % size;
        count = size - in_block < last - at ? size - in_block : last - at;
        const Half* values =
            task.values + (task.table[at / size] * size + in_block) * int64_t(task.head_dim);
        int offset = 0;
        for (; offset + kVectors * 16 <= task.head_dim; offset += kVectors * 16)
            weigh_block<queries, kVectors>(task, scores + at, values, count, results, offset);
        for (; offset < task.head_dim; offset += 16)
            weigh_block<queries, 1>(task, scores + at, values, count, results, offset);
    }
}

// Positions that all queries see are weighed together; each query's others alone, in order.
template <int queries>
LANE_INLINE void weigh_all(const AttentionTask& task, int query, const float* factors) {
    const int32_t *starts = task.starts + query, *stops = task.stops + query;
    float* const* results = task.results + query;
    int first = starts[0], last = stops[0];
    for (int row = 1; row < queries; row++) {
        first = starts[row] > first ? starts[row] : first;
        last = stops[row] < last ? stops[row] : last;
    }
    last = last < first ? first : last;
    for (int row = 0; row < queries; row++) {
        for (int i = 0; i < task.head_dim; i += 16) store(results[row] + i, zero());
        const int stop = stops[row] < first ? stops[row] : first;
        weigh<1>(task, task.scores + row * task.stride, starts[row], stop, results + row);
    }
    weigh<queries>(task, task.scores, first, last, results);
    for (int row = 0; row < queries; row++) {
        weigh<1>(task, task.scores + row * task.stride, last, stops[row], results + row);
        for (int i = 0; i < task.head_dim; i += 16)
            store(results[row] + i, multiply(load(results[row] + i), broadcast(factors[row])));
    }
}

template <int queries>
__attribute__((noinline)) void attend_some(const AttentionTask& task, int query, Half* gathered) {
    int first = task.starts[query], last = task.stops[query];
    for (int row = 1; row < queries; row++) {
        first = task.starts[query + row] < first ? task.starts[query + row] : first;
        last = task.stops[query + row] > last ? task.stops[query + row] : last;
    }
    score<queries>(task, task.queries + query, task.scores, first, last, gathered);
    float factors[queries];
    for (int row = 0; row < queries; row++)
        factors[row] = 1.0f / share_out(task.scores + row * task.stride, task.starts[query + row],
                                        task.stops[query + row]);
    weigh_all<queries>(task, query, factors);
}

void attend(const AttentionTask& task) {
    alignas(64) Half gathered[16 * 4096];  // the widest head (model_config.MAX_HEAD_DIM)
    static_assert(kQueryBlock <= 6 && kQueryBlock <= kMaxQueries, "the cases below");
    for (int query = 0; query < task.num_queries; query += kQueryBlock) {
        const int left = task.num_queries - query;
        switch (left < kQueryBlock ? left : kQueryBlock) {
            case 1: attend_some<1>(task, query, gathered); break;
            case 2: attend_some<2>(task, query, gathered); break;
            case 3: attend_some<3>(task, query, gathered); break;
            case 4: attend_some<4>(task, query, gathered); break;
            case 5: attend_some<5>(task, query, gathered); break;
            case 6: attend_some<6>(task, query, gathered); break;
        }
    }
}

// All kernels of a set.
constexpr lanehost::KernelSet make_kernels(const char* name) {
    return {name, quantize, product, quantize_finely, product_finely, norm,     rotate,
            gate, add_to,   to_half, attend,          likeliest};
}
}  // namespace
