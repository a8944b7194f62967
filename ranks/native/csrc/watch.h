// Where the time of a step goes: the clock of member 0 at the borders of stages.
//
// Law: reading it changes nothing. It is read some two hundred times a step, a few tens of
// nanoseconds each.
#pragma once
#include <chrono>
#include <cstdint>

namespace lanehost {

// `ranks/native/library.py` has the names, in this order. What waits for another member at the
// end of a stage is in the part of the stage.
enum Part : int { kNorm, kProducts, kRotate, kAttention, kExchange, kHead, kNumParts };

class Watch {
   public:
    // A step begins: what was counted is forgotten.
    void reset() {
        for (int64_t& part : ns_) part = 0;
    }
    // What was since the last border belongs to nobody here.
    void start() { last_ = now(); }
    void mark(Part part) {
        const int64_t at = now();
        ns_[part] += at - last_;
        last_ = at;
    }
    int64_t ns(int part) const { return ns_[part]; }

   private:
    static int64_t now() {
        using namespace std::chrono;
        return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
    }

    int64_t ns_[kNumParts] = {};
    int64_t last_ = 0;
};

}  // namespace lanehost
