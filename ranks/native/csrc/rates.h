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
// cache of the core, times the same tile of rows for some time.
inline double hot_ops(const KernelSet& kernels, const Matrix& weight, double for_s) {
    constexpr size_t kHotBytes = 128 * 1024;
    const int groups = weight.inputs / kGroup;
    std::vector<int8_t> values(size_t(groups) * kTileRows * kGroup + 64);
    std::vector<float> scales(size_t(groups) * kTileRows * 2 + 16),
        weighted_sums(size_t(groups) * kTileRows + 16), x(weight.inputs + 16);
    std::vector<int32_t> sums(size_t(groups) * kTileRows * 2 + 16);
    const Activations rows{values.data(), scales.data(), weighted_sums.data(), sums.data(), groups};
    for (size_t i = 0; i < x.size(); i++) x[i] = float(int(i % 17) - 8);
    for (int row = 0; row < kTileRows; row++) kernels.quantize(x.data(), rows, row, 0, groups);
    int blocks = int(kHotBytes / block_bytes(weight));
    if (blocks < 1) blocks = 1;
    if (blocks > weight.outputs / kColumns) blocks = weight.outputs / kColumns;
    std::vector<float> y(size_t(kTileRows) * blocks * kColumns + 16);
    const double ops = 2.0 * kTileRows * blocks * kColumns * weight.inputs;
    double done = 0;
    const StopWatch watch;
    do {
        kernels.product(weight, 0, blocks, rows, kTileRows, y.data(), blocks * kColumns, Write::kSet);
        done += ops;
    } while (watch.seconds() < for_s);
    return done / watch.seconds();
}

}  // namespace lanehost
