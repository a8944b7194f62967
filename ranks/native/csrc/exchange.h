// What ranks of one host tell each other within a step, through memory that all have mapped.
//
//   [page of the caller] [line of rank 0] [line of rank 1] ... [slots of 0: even, odd] [slots of 1] ...
//
// Every call is cut into rounds, which all ranks number alike. In a round a rank writes into
// its two slots in turn, and then says the round's number; who reads it waits for the number.
// A rank writes in round r once all others have said r - 1: they have then read what it wrote
// in r - 2, in the same slot.
//
// Sums are taken in the order of ranks, by every rank alike: the same bits everywhere.
// Waiting is spinning for some microseconds, fewer where that was in vain before, and then
// sleeping on a futex, in slices. After each slice a rank looks whether the other still lives. Nothing in the memory is used as a length
// or as an address: a rank that does other work than its fellows is told so.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lanehost {

// How a call ended; `ranks/native/exchange.py` has the words.
enum Outcome : int {
    kDone = 0,
    kTimedOut = 1,
    kEnded = 2,
    kLeft = 3,
    kDisagrees = 4,
    kGivenUp = 5
};

class Exchange {
   public:
    // Bytes of the memory of so many ranks.
    static size_t num_bytes(int world_size);

    // `memory` must be zeroed when the first rank comes, and outlive this. `watches` are
    // descriptors of the ranks' processes, by rank, -1 for this one.
    Exchange(uint8_t* memory, int rank, int world_size, const int* watches, double timeout_s);

    // Sum over ranks, in place.
    Outcome all_reduce(float* values, int64_t count);
    // Join rows over ranks; `widths` are bytes by rank. Only rank 0 gives `joined`.
    Outcome gather(const uint8_t* mine, int64_t rows, const int64_t* widths, uint8_t* joined);
    // Bytes of rank `root` for all.
    Outcome broadcast(uint8_t* bytes, int64_t count, int root);
    // Tell the others that nothing more comes.
    void leave();
    // From any thread of this process: a call that waits ends soon, and so does every later
    // one, with kGivenUp. No other rank is told.
    void give_up();
    // Of whom the last outcome speaks.
    int culprit() const { return culprit_; }

   private:
    struct Work {
        uint32_t kind;
        uint32_t root;
        uint64_t total;  // of the whole call
    };
    // What a rank says; on a pair of lines of the cache of its own.
    struct alignas(128) Line {
        std::atomic<uint32_t> said;
        std::atomic<uint32_t> num_sleepers;
        std::atomic<uint32_t> has_left;
        Work work[2];
    };

    Line& line(int rank) const;
    uint8_t* slot(int rank) const;
    bool has_said(int rank, uint32_t round) const;
    bool begin(const Work& work);
    void say();
    bool hear(int rank, const Work& work);
    bool await(int rank, uint32_t round);
    bool has_come(int rank, uint32_t round);
    bool fail(Outcome outcome, int rank);
    bool has_ended(int rank) const;

    uint8_t* const memory_;
    const int rank_;
    const int world_size_;
    const std::vector<int> watches_;
    const double timeout_s_;
    double spin_s_;
    uint32_t round_;  // the one that runs
    Outcome outcome_ = kDone;
    int culprit_ = -1;
    std::atomic<bool> is_given_up_{false};
};

}  // namespace lanehost
