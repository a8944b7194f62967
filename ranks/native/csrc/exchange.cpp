#include "exchange.h"

#if defined(__linux__)
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace lanehost {
namespace {

constexpr size_t kHeadBytes = 4096;
constexpr int64_t kSlotBytes = 256 * 1024;
constexpr int64_t kSlotFloats = kSlotBytes / sizeof(float);
// Halves of a layer end some tens of microseconds apart. Spinning is worth it only while the
// other rank runs as well: in vain, on a busy machine, it robs whoever else wants the core.
constexpr double kMaxSpin_s = 100e-6;
constexpr double kMinSpin_s = 2e-6;
constexpr int kPauses = 16;
// How soon the end of another rank is seen.
constexpr double kSlice_s = 0.05;

static_assert(std::atomic<uint32_t>::is_always_lock_free, "a futex is a plain word");
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex is a plain word");

enum Kind : uint32_t { kAllReduce = 1, kGather = 2, kBroadcast = 3 };

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

double now_s() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

void sleep_while(std::atomic<uint32_t>& word, uint32_t value) {
    const timespec slice = {0, long(kSlice_s * 1e9)};
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, value, &slice, nullptr, 0);
}

void wake_all(std::atomic<uint32_t>& word) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT32_MAX, nullptr, nullptr,
            0);
}

// Put bytes from `at` on of a block of columns where they belong in whole rows.
void spread(const uint8_t* from, int64_t at, int64_t count, int64_t width, uint8_t* to,
            int64_t stride) {
    while (count > 0) {
        const int64_t column = at % width;
        const int64_t run = std::min(count, width - column);
        std::memcpy(to + at / width * stride + column, from, size_t(run));
        from += run, at += run, count -= run;
    }
}

}  // namespace

size_t Exchange::num_bytes(int world_size) {
    return kHeadBytes + size_t(world_size) * (sizeof(Line) + 2 * kSlotBytes);
}

Exchange::Exchange(uint8_t* memory, int rank, int world_size, const int* watches, double timeout_s)
    : memory_(memory),
      rank_(rank),
      world_size_(world_size),
      watches_(watches, watches + world_size),
      timeout_s_(timeout_s),
      spin_s_(kMaxSpin_s),
      round_(line(rank).said.load(std::memory_order_relaxed)) {}

Outcome Exchange::all_reduce(float* values, int64_t count) {
    const Work work = {kAllReduce, 0, uint64_t(count)};
    for (int64_t at = 0; at < count; at += kSlotFloats) {
        const int64_t part = std::min(kSlotFloats, count - at);
        if (!begin(work)) return outcome_;
        std::memcpy(slot(rank_), values + at, size_t(part) * sizeof(float));
        say();
        for (int rank = 0; rank < world_size_; rank++)
            if (!hear(rank, work)) return outcome_;
        float* total = values + at;
        std::memcpy(total, slot(0), size_t(part) * sizeof(float));
        for (int rank = 1; rank < world_size_; rank++) {
            const float* share = reinterpret_cast<const float*>(slot(rank));
            for (int64_t i = 0; i < part; i++) total[i] += share[i];
        }
    }
    return outcome_;
}

Outcome Exchange::gather(const uint8_t* mine, int64_t rows, const int64_t* widths,
                         uint8_t* joined) {
    int64_t stride = 0, widest = 0;
    for (int rank = 0; rank < world_size_; rank++) {
        stride += widths[rank];
        widest = std::max(widest, widths[rank]);
    }
    const Work work = {kGather, 0, uint64_t(rows * stride)};
    if (rank_ == 0) spread(mine, 0, rows * widths[0], widths[0], joined, stride);
    for (int64_t at = 0; at < rows * widest; at += kSlotBytes) {
        if (!begin(work)) return outcome_;
        const int64_t left = rows * widths[rank_] - at;
        if (rank_ != 0 && left > 0)
            std::memcpy(slot(rank_), mine + at, size_t(std::min(kSlotBytes, left)));
        say();
        if (rank_ != 0) continue;
        int64_t column = 0;
        for (int rank = 1; rank < world_size_; rank++) {
            if (!hear(rank, work)) return outcome_;
            column += widths[rank - 1];
            const int64_t part = std::min(kSlotBytes, rows * widths[rank] - at);
            spread(slot(rank), at, part, widths[rank], joined + column, stride);
        }
    }
    return outcome_;
}

Outcome Exchange::broadcast(uint8_t* bytes, int64_t count, int root) {
    const Work work = {kBroadcast, uint32_t(root), uint64_t(count)};
    for (int64_t at = 0; at < count; at += kSlotBytes) {
        const size_t part = size_t(std::min(kSlotBytes, count - at));
        if (!begin(work)) return outcome_;
        if (rank_ == root) std::memcpy(slot(rank_), bytes + at, part);
        say();
        if (rank_ == root) continue;
        if (!hear(root, work)) return outcome_;
        std::memcpy(bytes + at, slot(root), part);
    }
    return outcome_;
}

void Exchange::leave() {
    line(rank_).has_left.store(1, std::memory_order_seq_cst);
    wake_all(line(rank_).said);
}

void Exchange::give_up() {
    is_given_up_.store(true, std::memory_order_seq_cst);
    // One that falls asleep right now looks after a slice.
    for (int rank = 0; rank < world_size_; rank++) wake_all(line(rank).said);
}

Exchange::Line& Exchange::line(int rank) const {
    return reinterpret_cast<Line*>(memory_ + kHeadBytes)[rank];
}

uint8_t* Exchange::slot(int rank) const {
    const size_t lines = size_t(world_size_) * sizeof(Line);
    return memory_ + kHeadBytes + lines + (2 * size_t(rank) + (round_ & 1)) * kSlotBytes;
}

// Numbers wrap around, after some days.
bool Exchange::has_said(int rank, uint32_t round) const {
    return int32_t(line(rank).said.load(std::memory_order_acquire) - round) >= 0;
}

bool Exchange::begin(const Work& work) {
    if (outcome_ != kDone) return false;
    if (is_given_up_.load(std::memory_order_relaxed)) return fail(kGivenUp, rank_);
    for (int rank = 0; rank < world_size_; rank++)
        if (!await(rank, round_)) return false;
    round_++;
    line(rank_).work[round_ & 1] = work;
    return true;
}

// Who falls asleep counts itself before it looks at the number; who says a number looks for
// sleepers after that. One of the two sees the other.
void Exchange::say() {
    Line& mine = line(rank_);
    mine.said.store(round_, std::memory_order_seq_cst);
    if (mine.num_sleepers.load(std::memory_order_seq_cst) != 0) wake_all(mine.said);
}

bool Exchange::hear(int rank, const Work& work) {
    if (!await(rank, round_)) return false;
    const Work& theirs = line(rank).work[round_ & 1];
    const bool is_same =
        theirs.kind == work.kind && theirs.root == work.root && theirs.total == work.total;
    return is_same || fail(kDisagrees, rank);
}

bool Exchange::await(int rank, uint32_t round) {
    if (has_said(rank, round)) return true;
    if (has_come(rank, round)) return true;
    Line& theirs = line(rank);
    // Counted in slices: time in which this rank itself was stopped is not the other's.
    for (double left_s = timeout_s_; left_s > 0;) {
        const double since = now_s();
        theirs.num_sleepers.fetch_add(1, std::memory_order_seq_cst);
        const uint32_t seen = theirs.said.load(std::memory_order_seq_cst);
        if (int32_t(seen - round) < 0) sleep_while(theirs.said, seen);
        theirs.num_sleepers.fetch_sub(1, std::memory_order_relaxed);
        // In this order: its last word counts.
        const bool is_gone = has_ended(rank);
        const bool is_out = theirs.has_left.load(std::memory_order_seq_cst) != 0;
        if (has_said(rank, round)) return true;
        if (is_given_up_.load(std::memory_order_seq_cst)) return fail(kGivenUp, rank_);
        if (is_out) return fail(kLeft, rank);
        if (is_gone) return fail(kEnded, rank);
        left_s -= std::min(kSlice_s, now_s() - since);
    }
    return fail(kTimedOut, rank);
}

// Spin: longer each time it was worth it, half as long each time it was in vain.
bool Exchange::has_come(int rank, uint32_t round) {
    for (const double until = now_s() + spin_s_; now_s() < until;)
        for (int i = 0; i < kPauses; i++) {
            if (has_said(rank, round)) {
                spin_s_ = std::min(kMaxSpin_s, spin_s_ * 1.25);
                return true;
            }
            pause();
        }
    spin_s_ = std::max(kMinSpin_s, spin_s_ / 2);
    return false;
}

bool Exchange::fail(Outcome outcome, int rank) {
    outcome_ = outcome;
    culprit_ = rank;
    return false;
}

bool Exchange::has_ended(int rank) const {
    if (watches_[rank] < 0) return false;
    pollfd watched = {watches_[rank], POLLIN, 0};
    return poll(&watched, 1, 0) > 0;
}

}  // namespace lanehost

// What Python calls (`ranks/native/exchange.py`).
#define EXPORTED extern "C" __attribute__((visibility("default")))

using lanehost::Exchange;

EXPORTED int64_t lanehost_exchange_bytes(int world_size) {
    return int64_t(Exchange::num_bytes(world_size));
}
// Null where the memory cannot be mapped. The descriptor may be closed afterwards.
EXPORTED uint8_t* lanehost_map_memory(int descriptor, int world_size) {
    void* memory = mmap(nullptr, Exchange::num_bytes(world_size), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_POPULATE, descriptor, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<uint8_t*>(memory);
}
EXPORTED void lanehost_unmap_memory(uint8_t* memory, int world_size) {
    munmap(memory, Exchange::num_bytes(world_size));
}
EXPORTED Exchange* lanehost_new_exchange(uint8_t* memory, int rank, int world_size,
                                         const int* watches, double timeout_s) {
    return new (std::nothrow) Exchange(memory, rank, world_size, watches, timeout_s);
}
EXPORTED void lanehost_end_exchange(Exchange* exchange) { delete exchange; }
EXPORTED void lanehost_leave_exchange(Exchange* exchange) { exchange->leave(); }
EXPORTED void lanehost_give_up_exchange(Exchange* exchange) { exchange->give_up(); }
EXPORTED int lanehost_all_reduce(Exchange* exchange, float* values, int64_t count) {
    return exchange->all_reduce(values, count);
}
EXPORTED int lanehost_gather(Exchange* exchange, const uint8_t* mine, int64_t rows,
                             const int64_t* widths, uint8_t* joined) {
    return exchange->gather(mine, rows, widths, joined);
}
EXPORTED int lanehost_broadcast(Exchange* exchange, uint8_t* bytes, int64_t count, int root) {
    return exchange->broadcast(bytes, count, root);
}
EXPORTED int lanehost_culprit(const Exchange* exchange) { return exchange->culprit(); }
#else
// Nobody can make one here; models name it all the same.
namespace lanehost {
Outcome Exchange::all_reduce(float*, int64_t) { return kDisagrees; }
}  // namespace lanehost
#endif  // defined(__linux__)
