// Random and hard operands of kernels, and what kernels wrote with them.
#pragma once
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "kernels.h"

using namespace lanehost;

namespace {

struct Random {
    uint64_t state;

    uint32_t bits() {
        uint64_t z = state += 0x9e3779b97f4a7c15;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        return uint32_t((z ^ z >> 31) >> 32);
    }
    int below(int count) { return int(bits() % uint32_t(count)); }
    float unit() { return float(int32_t(bits()) >> 8) * 0x1p-23f; }  // from -1 to 1
};

enum Taste { kPlain, kTiny, kGreat, kAny, kNumTastes };
constexpr Taste kTastes[] = {kPlain, kTiny, kGreat, kAny};

float of_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

float draw(Random& random, Taste taste) {
    const uint32_t bits = random.bits();
    switch (taste) {
        case kTiny:  // denormals, zeros, and what quantization takes for zeros or just does not
            return of_bits((bits & 0x80000000) | (bits % 8 ? random.bits() % 0x10000000 : 0));
        case kGreat:
            return of_bits((bits & 0x80000000) | (0x78000000 + random.bits() % 0x07800000));
        case kAny:  // infinities and what is no number, too
            return of_bits(bits % 16 ? random.bits() : (bits & 0x80000000) | 0x7f800000);
        default:
            return random.unit() * (bits % 16 ? 1.0f : bits % 32 ? 40.0f : 1e-3f);
    }
}

Half draw_half(Random& random, Taste taste) {
    const uint32_t bits = random.bits();
    switch (taste) {
        case kTiny: return Half(bits & 0x83ff);
        case kGreat: return Half((bits & 0x83ff) | 0x7800);
        case kAny: return Half(bits);
        default: return Half((bits & 0x83ff) | (0x2000 + (bits >> 16) % 0x1400));
    }
}

std::vector<float> draw_all(Random& random, size_t count, Taste taste) {
    std::vector<float> all(count);
    for (float& value : all) value = draw(random, taste);
    return all;
}

std::vector<Half> draw_halves(Random& random, size_t count, Taste taste) {
    std::vector<Half> all(count);
    for (Half& value : all) value = draw_half(random, taste);
    return all;
}

// ---- what was written

struct Case {
    std::string name;
    std::vector<uint32_t> words;
};

struct Record {
    std::vector<Case> cases;

    void begin(const std::string& name) { cases.push_back({name, {}}); }
    void add(uint32_t word) { cases.back().words.push_back(word); }
    void add(const std::vector<float>& values) {
        for (float value : values) {
            uint32_t bits;
            std::memcpy(&bits, &value, 4);
            add(value != value ? 0x7fc00000 : bits);
        }
    }
    void add(const std::vector<Half>& values) {
        for (Half value : values) add(uint32_t((value & 0x7fff) > 0x7c00 ? 0x7e00 : value));
    }
    void add(const std::vector<int8_t>& values) {
        for (int8_t value : values) add(uint32_t(uint8_t(value)));
    }
    void add(const std::vector<int16_t>& values) {
        for (int16_t value : values) add(uint32_t(uint16_t(value)));
    }
    void add(const std::vector<int32_t>& values) {
        for (int32_t value : values) add(uint32_t(value));
    }
    uint64_t digest() const {
        uint64_t hash = 0xcbf29ce484222325;
        for (const Case& each : cases)
            for (uint32_t word : each.words) hash = (hash ^ word) * 0x100000001b3;
        return hash;
    }
};

std::string label(const char* kernel, std::initializer_list<int> numbers) {
    std::string text = kernel;
    for (int number : numbers) text += " " + std::to_string(number);
    return text;
}

// What a kernel should not touch holds this, and is compared as well.
constexpr float kUntouched = -12345.678f;

// ---- operands

struct Tiled {
    int groups;
    size_t count;
    std::vector<int8_t> values = std::vector<int8_t>(count * kGroup, int8_t(3));
    std::vector<float> scales = std::vector<float>(count * 2, 0.5f);
    std::vector<float> weighted_sums = std::vector<float>(count, 0.25f);
    std::vector<int32_t> sums = std::vector<int32_t>(count * 2, 48);

    Tiled(int rows, int groups)
        : groups(groups), count(size_t((rows + kTileRows - 1) / kTileRows * kTileRows) * groups) {}
    Activations view() {
        return {values.data(), scales.data(), weighted_sums.data(), sums.data(), groups};
    }
};

struct Fine {
    int groups;
    size_t count;
    std::vector<int16_t> values = std::vector<int16_t>(count * kGroup, int16_t(3));
    std::vector<float> scales = std::vector<float>(count, 0.5f);
    std::vector<float> weighted_sums = std::vector<float>(count, 0.25f);

    Fine(int rows, int groups) : groups(groups), count(size_t(rows) * groups) {}
    FineActivations view() { return {values.data(), scales.data(), weighted_sums.data(), groups}; }
};

// On a line of the cache, as matrices are.
struct Weight {
    std::vector<uint8_t> memory;
    Matrix matrix;
    uint8_t* begin;

    Weight(int32_t kind, int outputs, int groups)
        : matrix{nullptr, kind, outputs, groups * kGroup} {
        memory.resize(num_bytes() + 64);
        begin = memory.data() + (64 - uintptr_t(memory.data()) % 64) % 64;
        matrix.data = begin;
    }
    size_t num_bytes() const { return block_bytes(matrix) * size_t(matrix.outputs / kColumns); }
    uint8_t* block(int number) { return begin + block_bytes(matrix) * number; }
    // Scales, and minimums, of group `group`: 16 of each.
    Half* scales(int number, int group) {
        if (matrix.kind == kFourBit) return (Half*)(block(number) + group * 320 + 256);
        return (Half*)block(number) + group * kColumns;
    }
    // Each block's scales are of another taste.
    void fill(Random& random) {
        const int per_group = matrix.kind == kFourBit ? 32 : 16;
        for (size_t i = 0; i < num_bytes(); i++) begin[i] = uint8_t(random.bits());
        for (int number = 0; number < matrix.outputs / kColumns; number++)
            for (int group = 0; group < matrix.inputs / kGroup; group++)
                for (int i = 0; i < per_group; i++)
                    scales(number, group)[i] = draw_half(random, kTastes[number % kNumTastes]);
    }
};

// Rows of all tastes, so that one that holds no number leaves others that do.
Tiled quantized_rows(const KernelSet& set, Random& random, int rows, int groups) {
    Tiled tiled(rows, groups);
    for (int row = 0; row < rows; row++) {
        const Taste taste = kTastes[(row + rows) % 5 % kNumTastes];
        set.quantize(draw_all(random, size_t(groups) * kGroup, taste).data(), tiled.view(), row, 0,
                     groups);
    }
    return tiled;
}

Fine fine_rows(const KernelSet& set, Random& random, int rows, int groups) {
    Fine fine(rows, groups);
    for (int row = 0; row < rows; row++) {
        const Taste taste = kTastes[(row + rows) % 5 % kNumTastes];
        set.quantize_finely(draw_all(random, size_t(groups) * kGroup, taste).data(), fine.view(),
                            row);
    }
    return fine;
}

}  // namespace
