#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace lanehost {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014).
constexpr uint64_t kStep = 0x9E3779B97F4A7C15u, kFirst = 0xBF58476D1CE4E5B9u,
                   kSecond = 0x94D049BB133111EBu;
constexpr int kUniformBits = 52;
constexpr size_t kBlock = 64;  // tokens whose noise is bounded at once
constexpr int kBins = 4096;
// Of a row that is not flat, what is likelier than e^-7 of the likeliest holds nearly all mass.
constexpr double kHead = -7.0;

uint64_t hash_of(uint64_t key, int32_t id) {
    uint64_t value = uint64_t(id) * kStep + key;
    value = (value ^ value >> 30) * kFirst;
    value = (value ^ value >> 27) * kSecond;
    return (value ^ value >> 31) >> (64 - kUniformBits);
}

// Gumbel noise; it rises with the bits. Rounded to float, as the reference does.
double noise_of(uint64_t bits) {
    const double uniform = (double(bits) + 0.5) * 0x1p-52;
    return double(float(-std::log(-std::log(uniform))));
}

// Scores are at most 0: the nearer to it, the lower the bin.
int bin_of(double score) {
    const double size = 0.0 - score;
    uint64_t bits;
    std::memcpy(&bits, &size, sizeof bits);
    return int(bits >> 51);  // the exponent and one bit more
}

}  // namespace

int64_t Sampler::draw(const float* logits, int width, const Draw& draw) {
    score_all(logits, width, draw.temperature);
    if (draw.top_k > 0 && draw.top_k < width) keep_top_k(size_t(draw.top_k));
    if (draw.top_p < 1) keep_top_p(draw.top_p);
    if (std::isfinite(draw.log_min_p)) keep_from(draw.log_min_p);
    double best = -HUGE_VAL;
    int64_t winner = tokens_.front().id;
    uint64_t bits[kBlock];
    for (size_t begin = 0; begin < tokens_.size(); begin += kBlock) {
        const size_t count = std::min(kBlock, tokens_.size() - begin);
        const Token* block = tokens_.data() + begin;
        double greatest = block->score;
        uint64_t most = 0;
        for (size_t i = 0; i < count; i++) {
            bits[i] = hash_of(draw.key, block[i].id);
            most = std::max(most, bits[i]);
            greatest = std::max(greatest, block[i].score);
        }
        // No sum of the block is above this one: rounding keeps order.
        if (greatest + noise_of(most) <= best) continue;
        for (size_t i = 0; i < count; i++) {
            const double noisy = block[i].score + noise_of(bits[i]);
            if (noisy <= best) continue;
            best = noisy;
            winner = block[i].id;
        }
    }
    return winner;
}

void Sampler::score_all(const float* logits, int width, double temperature) {
    const double greatest = double(*std::max_element(logits, logits + width)) / temperature;
    tokens_.resize(size_t(width));
    for (int id = 0; id < width; id++)
        tokens_[size_t(id)] = {double(logits[id]) / temperature - greatest, id};
}

// The `top_k` largest; of equal ones at the edge those with the lowest ids.
void Sampler::keep_top_k(size_t top_k) {
    uint32_t counts[kBins] = {};
    for (const Token& token : tokens_) counts[bin_of(token.score)]++;
    int last = 0;
    for (size_t above = counts[0]; above < top_k; above += counts[last]) last++;
    ranked_.clear();
    for (const Token& token : tokens_)
        if (bin_of(token.score) <= last) ranked_.push_back(token);
    const auto edge = ranked_.begin() + ptrdiff_t(top_k) - 1;
    const auto is_before = [](const Token& one, const Token& other) {
        return one.score != other.score ? one.score > other.score : one.id < other.id;
    };
    std::nth_element(ranked_.begin(), edge, ranked_.end(), is_before);
    ranked_.resize(top_k);
    std::sort(ranked_.begin(), ranked_.end(),
              [](const Token& one, const Token& other) { return one.id < other.id; });
    tokens_.swap(ranked_);
}

void Sampler::keep_from(double least) {
    const auto end = std::remove_if(tokens_.begin(), tokens_.end(),
                                    [least](const Token& token) { return token.score < least; });
    tokens_.erase(end, tokens_.end());
}

// The shortest run of the likeliest tokens that holds `top_p` of the mass.
void Sampler::keep_top_p(double top_p) {
    double total = 0;
    for (const Token& token : tokens_) total += std::exp(token.score);
    const double wanted = total * top_p;
    // n tokens below `spare` / n have less than `spare` together.
    const double spare = total * (1 - top_p) / double(tokens_.size());
    if (keep_head(kHead, wanted) || keep_head(std::log(spare), wanted)) return;
    keep_head(-HUGE_VAL, wanted);
}

// Look for the run among the tokens with at least this score: false when they hold too little.
bool Sampler::keep_head(double least_score, double wanted) {
    ranked_.clear();
    for (const Token& token : tokens_)
        if (token.score >= least_score) ranked_.push_back(token);
    std::stable_sort(ranked_.begin(), ranked_.end(), [](const Token& one, const Token& other) {
        return one.score > other.score;
    });
    double mass = 0;
    size_t count = 0;
    while (count < ranked_.size() && (count == 0 || mass < wanted))
        mass += std::exp(ranked_[count++].score);
    if (mass < wanted && ranked_.size() < tokens_.size()) return false;
    ranked_.resize(count);
    std::sort(ranked_.begin(), ranked_.end(),
              [](const Token& one, const Token& other) { return one.id < other.id; });
    tokens_.swap(ranked_);
    return true;
}

}  // namespace lanehost
