// How fast this machine reads memory and multiplies at best: what a step is compared with.
#pragma once
#include <chrono>
#include <cstdint>
#include <vector>

#include "kernels.h"

namespace lanehost {

class StopWatch {
   public:
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
    }

   private:
    std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

// Nanoseconds of one reading of all words; their sum is written, so that none is left out.
inline double read_ns(const uint64_t* words, int64_t count, uint64_t* sum) {
    const StopWatch watch;
    uint64_t sums[8] = {};
    for (int64_t i = 0; i + 8 <= count; i += 8)
        for (int lane = 0; lane < 8; lane++) sums[lane] += words[i + lane];
    *sum = 0;
    for (uint64_t one : sums) *sum += one;
    return watch.seconds() * 1e9;
}

// Multiplications and additions a second: the first blocks of a weight, as many as stay in a
// cache of the core, times the same tile of rows for some time; in eight bits, or as the head.
inline double hot_ops(const KernelSet& kernels, const Matrix& weight, bool is_fine, double for_s) {
    constexpr size_t kHotBytes = 128 * 1024;
    const int groups = weight.inputs / kGroup;
    const size_t tile = size_t(groups) * kTileRows;
    std::vector<int8_t> values(tile * kGroup + 64);
    std::vector<int16_t> fine_values(tile * kGroup + 64);
    std::vector<float> scales(tile * 2 + 16), weighted_sums(tile + 16), x(weight.inputs + 16);
    std::vector<int32_t> sums(tile * 2 + 16);
    const Activations rows{values.data(), scales.data(), weighted_sums.data(), sums.data(), groups};
    const FineActivations fine{fine_values.data(), scales.data(), weighted_sums.data(), groups};
    for (size_t i = 0; i < x.size(); i++) x[i] = float(int(i % 17) - 8);
    for (int row = 0; row < kTileRows; row++) {
        if (is_fine) kernels.quantize_finely(x.data(), fine, row);
        else kernels.quantize(x.data(), rows, row, 0, groups);
    }
    int blocks = int(kHotBytes / block_bytes(weight));
    if (blocks < 1) blocks = 1;
    if (blocks > weight.outputs / kColumns) blocks = weight.outputs / kColumns;
    const int width = blocks * kColumns;
    std::vector<float> y(size_t(kTileRows) * width + 16);
    double done = 0;
    const StopWatch watch;
    do {
        if (is_fine) kernels.product_finely(weight, 0, blocks, fine, kTileRows, y.data(), width);
        else kernels.product(weight, 0, blocks, rows, kTileRows, y.data(), width, Write::kSet, {});
        done += 2.0 * kTileRows * width * weight.inputs;
    } while (watch.seconds() < for_s);
    return done / watch.seconds();
}

}  // namespace lanehost
