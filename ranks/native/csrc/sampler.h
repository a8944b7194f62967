// From finite logits to a token id, as `ranks/sampler.py` says; the laws are told there.
//
// What is slow there is cheap here: of a whole vocabulary only few tokens can win, and noise is
// computed for no others. What is kept and what wins is the same.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lanehost {

// How a row draws; laid out as `ranks/native/library.py` writes it.
struct Draw {
    double temperature;  // 0 takes the likeliest, and no sampler draws
    double top_p;        // 1 keeps all
    double log_min_p;    // the least score that is kept; minus infinity keeps all
    int64_t top_k;       // 0 keeps all
    uint64_t key;        // of the noise, from the seed and the position
};

class Sampler {
   public:
    // The token that a row of finite logits draws.
    int64_t draw(const float* logits, int width, const Draw& draw);

   private:
    struct Token {
        double score;
        int32_t id;
    };

    void score_all(const float* logits, int width, double temperature);
    void keep_top_k(size_t top_k);
    void keep_top_p(double top_p);
    void keep_from(double least);
    bool keep_head(double least_score, double wanted);

    std::vector<Token> tokens_;  // those that are left, ids rising; scores are at most 0
    std::vector<Token> ranked_;
};

}  // namespace lanehost
