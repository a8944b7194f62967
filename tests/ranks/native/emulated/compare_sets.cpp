// Runs every kernel of the portable set, and of each set that is named, over random and hard
// inputs, and compares what they write, bit by bit.
//
// Linked against the library itself, so that it asks for a set as the ranks do, and uses what
// the package's build made. Inputs come of integers and exact operations alone: the digest of
// the portable set's outputs must be the same on any processor. What is no number counts as
// one value, whatever its bits: processors make different ones.
//
//   compare_sets [SET...]   prints the digest; exit code 1: bits differ, 2: a set cannot run
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "operands.h"

extern "C" const KernelSet* lanehost_find_set(const char* name);

// A kernel that is new must be compared below.
static_assert(sizeof(KernelSet) == 12 * sizeof(void*), "a name and eleven kernels");

namespace {

void run_quantize(const KernelSet& set, Record& record) {
    for (int groups : {1, 2, 5})
        for (int rows = 1; rows <= 17; rows++)
            for (int first = 0; first < groups; first += 2) {
                Random random{uint64_t(groups * 100 + rows)};
                Tiled tiled(rows, groups);
                for (int row = 0; row < rows; row++) {
                    const auto x = draw_all(random, groups * kGroup, kTastes[row % kNumTastes]);
                    set.quantize(x.data() + first * kGroup, tiled.view(), row, first, groups);
                }
                record.begin(label("quantize: groups, rows, first", {groups, rows, first}));
                record.add(tiled.values);
                record.add(tiled.scales);
                record.add(tiled.weighted_sums);
                record.add(tiled.sums);
            }
}

// Blocks 1 to 5 of 6, in rows that are 16 values further apart than they are long.
void run_product(const KernelSet& set, Record& record) {
    constexpr int kOutputs = 6 * kColumns, kStride = kOutputs + 16;
    for (int32_t kind : {kFourBit, kEightBit})
        for (int groups : {1, 3, 7, 18})
            for (int rows = 1; rows <= 17; rows++) {
                Random random{uint64_t(kind * 1000 + groups * 100 + rows)};
                Weight weight(kind, kOutputs, groups);
                weight.fill(random);
                Tiled x = quantized_rows(set, random, rows, groups);
                for (Write write : {Write::kSet, Write::kAdd}) {
                    std::vector<float> y(size_t(rows) * kStride, kUntouched);
                    set.product(weight.matrix, 1, 5, x.view(), rows, y.data(), kStride, write, {});
                    record.begin(label("product: kind, groups, rows, write",
                                       {kind, groups, rows, int(write)}));
                    record.add(y);
                }
            }
}

// The same of rows in fifteen bits.
void run_finely(const KernelSet& set, Record& record) {
    constexpr int kOutputs = 6 * kColumns, kStride = kOutputs + 16;
    for (int32_t kind : {kFourBit, kEightBit})
        for (int groups : {1, 3, 18})
            for (int rows = 1; rows <= 9; rows++) {
                Random random{uint64_t(kind * 1000 + groups * 100 + rows)};
                Weight weight(kind, kOutputs, groups);
                weight.fill(random);
                Fine x = fine_rows(set, random, rows, groups);
                std::vector<float> y(size_t(rows) * kStride, kUntouched);
                set.product_finely(weight.matrix, 1, 5, x.view(), rows, y.data(), kStride);
                record.begin(label("finely: kind, groups, rows", {kind, groups, rows}));
                record.add(x.values);
                record.add(x.scales);
                record.add(x.weighted_sums);
                record.add(y);
            }
}

// The greatest sums that there can be.
void run_extreme_product(const KernelSet& set, Record& record) {
    for (int32_t kind : {kFourBit, kEightBit})
        for (int quant : {0x00, 0x0f, 0x7f, 0x80, 0xf0, 0xff})
            for (int value : {-127, 127}) {
                Weight weight(kind, kColumns, 2);
                std::memset(weight.begin, quant, weight.num_bytes());
                for (int group = 0; group < 2; group++)
                    for (int i = 0; i < 16; i++) weight.scales(0, group)[i] = 0x3c00;
                Tiled x(5, 2);
                for (int8_t& each : x.values) each = int8_t(value);
                for (int32_t& sum : x.sums) sum = value * kHalfGroup;
                std::vector<float> y(5 * kColumns, kUntouched);
                set.product(weight.matrix, 0, 1, x.view(), 5, y.data(), kColumns, Write::kSet, {});
                record.begin(label("extreme product: kind, quant, value", {kind, quant, value}));
                record.add(y);
                Fine fine(5, 2);
                for (int16_t& each : fine.values) each = int16_t(value * 129);
                set.product_finely(weight.matrix, 0, 1, fine.view(), 5, y.data(), kColumns);
                record.add(y);
            }
}

// Every half there is, as the scale of a column.
void run_halves(const KernelSet& set, Record& record) {
    constexpr int kOutputs = 1 << 16;
    for (int32_t kind : {kFourBit, kEightBit}) {
        Weight weight(kind, kOutputs, 1);
        for (int half = 0; half < kOutputs; half++) {
            Half* scales = weight.scales(half / kColumns, 0);
            std::memset(weight.block(half / kColumns) + (kind == kFourBit ? 0 : 64), 1, 256);
            scales[half % kColumns] = Half(half);
            if (kind == kFourBit) scales[kColumns + half % kColumns] = Half(half * 3);
        }
        Tiled x(1, 1);
        std::vector<float> y(kOutputs, kUntouched);
        set.product(weight.matrix, 0, kOutputs / kColumns, x.view(), 1, y.data(), kOutputs,
                    Write::kSet, {});
        record.begin(label("every half as a scale: kind", {kind}));
        record.add(y);
    }
}

void run_norm(const KernelSet& set, Record& record) {
    for (Taste taste : kTastes)
        for (int width : {16, 32, 48, 80, 272, 576})
            for (float eps : {0.0f, 1e-5f}) {
                Random random{uint64_t(taste * 1000 + width)};
                const auto x = draw_all(random, width, taste);
                const auto weight = draw_all(random, width, kPlain);
                std::vector<float> y(width, kUntouched);
                set.norm(x.data(), weight.data(), width, eps, y.data());
                record.begin(label("norm: taste, width, has eps", {taste, width, eps > 0}));
                record.add(y);
            }
}

void run_rotate(const KernelSet& set, Record& record) {
    for (Taste taste : kTastes)
        for (int head_dim = 2; head_dim <= 272; head_dim += 2) {
            Random random{uint64_t(taste * 1000 + head_dim)};
            auto head = draw_all(random, head_dim, taste);
            const auto cos = draw_all(random, head_dim / 2, kPlain);
            const auto sin = draw_all(random, head_dim / 2, kPlain);
            set.rotate(head.data(), cos.data(), sin.data(), head_dim, 0.125f);
            record.begin(label("rotate: taste, head_dim", {taste, head_dim}));
            record.add(head);
        }
}

// Every sign, exponent and seven bits behind it, with lower bits where halves are rounded.
std::vector<float> sweep() {
    Random random{7};
    std::vector<float> all;
    for (uint32_t low : {0x0000, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001, 0xf000, 0xffff})
        for (uint32_t high = 0; high < 1 << 16; high++) all.push_back(of_bits(high << 16 | low));
    for (uint32_t high = 0; high < 1 << 16; high++)
        all.push_back(of_bits(high << 16 | random.bits() >> 16));
    return all;
}

void run_elementwise(const KernelSet& set, Record& record) {
    const std::vector<float> x = sweep();
    const int count = int(x.size());
    Random random{8};
    std::vector<Half> halves(x.size(), 0x1234);
    set.to_half(x.data(), count, halves.data());
    record.begin("to_half: sweep");
    record.add(halves);
    std::vector<float> y(x.size(), kUntouched);
    set.gate(x.data(), draw_all(random, x.size(), kPlain).data(), count, y.data());
    record.begin("gate: sweep");
    record.add(y);
    y.assign(x.size(), kUntouched);
    std::vector<float> moderate(x.size());  // where e^x is neither nothing nor infinite
    for (float& value : moderate) value = random.unit() * 90;
    set.gate(moderate.data(), x.data(), count, y.data());
    record.begin("gate: from -90 to 90");
    record.add(y);
    for (Taste taste : kTastes) {
        y = draw_all(random, x.size(), taste);
        set.add(y.data(), x.data(), count);
        record.begin(label("add: sweep, taste", {taste}));
        record.add(y);
    }
}

// Of any length; the greatest anywhere, often twice; now and then something that is not finite.
void run_likeliest(const KernelSet& set, Record& record) {
    Random random{9};
    for (int count : {1, 15, 16, 17, 511, 512, 513, 1040, 4099})
        for (Taste taste : kTastes)
            for (int turn = 0; turn < 4; turn++) {
                std::vector<float> x = draw_all(random, size_t(count), taste);
                if (turn) x[size_t(std::fabs(random.unit()) * 0.999f * float(count))] = x[0] = 1e6f;
                if (turn == 2) x[size_t(count) - 1] = INFINITY;
                if (turn == 3) x[size_t(count) / 2] = NAN;
                record.begin(label("likeliest: count, taste, turn", {count, taste, turn}));
                record.add(std::vector<float>{float(set.likeliest(x.data(), count))});
            }
}

struct Head {
    int head_dim, block_size, num_queries;
    Taste query_taste, kv_taste;
};

// Blocks lie in any order, what no query sees is any half, and each query sees its own part.
void run_attend(const KernelSet& set, Record& record, const Head& head) {
    constexpr int kPositions = 53, kStride = 64;
    Random random{uint64_t(head.head_dim * 10000 + head.block_size * 100 + head.num_queries)};
    const int num_blocks = (kPositions + head.block_size - 1) / head.block_size;
    const size_t values_in_all = size_t(num_blocks) * head.block_size * head.head_dim;
    const auto keys = draw_halves(random, values_in_all, head.kv_taste);
    const auto values = draw_halves(random, values_in_all, head.kv_taste);
    std::vector<int64_t> table(num_blocks);
    for (int i = 0; i < num_blocks; i++) table[i] = (i + 1) % num_blocks;
    const size_t query_values = size_t(head.num_queries) * head.head_dim;
    const auto queries = draw_all(random, query_values, head.query_taste);
    std::vector<float> results(query_values, kUntouched), scores(kMaxQueries * kStride, kUntouched);
    std::vector<const float*> query_rows;
    std::vector<float*> result_rows;
    std::vector<int32_t> starts, stops;
    for (int row = 0; row < head.num_queries; row++) {
        query_rows.push_back(queries.data() + row * head.head_dim);
        result_rows.push_back(results.data() + row * head.head_dim);
        stops.push_back(1 + random.below(kPositions));
        starts.push_back(row % 2 ? random.below(stops.back()) : 0);
    }
    set.attend({keys.data(), values.data(), table.data(), head.block_size, head.head_dim,
                head.num_queries, query_rows.data(), result_rows.data(), starts.data(),
                stops.data(), scores.data(), kStride});
    record.begin(label("attend: head_dim, block_size, queries, tastes",
                       {head.head_dim, head.block_size, head.num_queries, head.query_taste,
                        head.kv_taste}));
    record.add(results);
}

void run_attention(const KernelSet& set, Record& record) {
    for (int block_size : {1, 2, 3, 4, 5, 7, 8, 15, 16, 24, 32, 48, 64})
        for (int queries = 1; queries <= 17; queries++) {
            const int head_dim = 16 + (queries + block_size) % 9 * 16;
            run_attend(set, record, {head_dim, block_size, queries, kPlain, kPlain});
        }
    for (int head_dim = 16; head_dim <= 512; head_dim += 16)
        for (int queries : {1, 5})
            run_attend(set, record, {head_dim, 16, queries, kPlain, kPlain});
    run_attend(set, record, {4096, 8, 3, kPlain, kPlain});
    for (Taste query_taste : kTastes)
        for (Taste kv_taste : kTastes)
            for (int queries = 1; queries <= 6; queries++)
                run_attend(set, record, {80, 16, queries, query_taste, kv_taste});
}

Record run_all(const KernelSet& set) {
    Record record;
    run_quantize(set, record);
    run_product(set, record);
    run_finely(set, record);
    run_extreme_product(set, record);
    run_halves(set, record);
    run_norm(set, record);
    run_rotate(set, record);
    run_elementwise(set, record);
    run_likeliest(set, record);
    run_attention(set, record);
    return record;
}

// How many cases differ; says where the first few do.
int count_differences(const char* name, const Record& record, const Record& expected) {
    int differing = 0;
    for (size_t at = 0; at < expected.cases.size(); at++) {
        const Case &a = record.cases[at], &b = expected.cases[at];
        size_t word = 0;
        while (word < b.words.size() && a.words[word] == b.words[word]) word++;
        if (word == b.words.size()) continue;
        if (++differing <= 10)
            std::printf("%s: %s: word %zu is %08x, portable %08x\n", name, b.name.c_str(), word,
                        unsigned(a.words[word]), unsigned(b.words[word]));
    }
    return differing;
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<const KernelSet*> sets;
    for (int i = 1; i < argc; i++) {
        sets.push_back(lanehost_find_set(argv[i]));
        if (sets.back() != nullptr) continue;
        std::printf("%s: this processor or this build has no such set\n", argv[i]);
        return 2;
    }
    const Record expected = run_all(*lanehost_find_set("portable"));
    int differing = 0;
    for (const KernelSet* set : sets) {
        const int found = count_differences(set->name, run_all(*set), expected);
        std::printf("%s: %d of %zu cases differ\n", set->name, found, expected.cases.size());
        differing += found;
    }
    std::printf("digest of portable: %016llx\n", (unsigned long long)expected.digest());
    return differing ? 1 : 0;
}
