#include "team.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace lanehost {
namespace {
// Some tens of microseconds: the longest that members of a step usually wait for another.
constexpr int kSpins = 1500;

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}
}  // namespace

Team::Team(int size) : size_(size < 1 ? 1 : size) {
    for (int member = 1; member < size_; member++)
        threads_.emplace_back([this, member] { serve(member); });
}

Team::~Team() {
    is_ending_ = true;
    advance(round_);
    for (std::thread& thread : threads_) thread.join();
}

void Team::run(Work work, void* context) {
    work_ = work;
    context_ = context;
    if (size_ > 1) advance(round_);
    work(context, 0);
    meet();
}

void Team::meet() {
    if (size_ == 1) return;
    const uint32_t before = met_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == uint32_t(size_)) {
        arrived_.store(0, std::memory_order_relaxed);
        advance(met_);
    } else {
        wait_while(met_, before);
    }
}

void Team::serve(int member) {
    for (uint32_t round = 0;; round++) {
        wait_while(round_, round);
        if (is_ending_) return;
        work_(context_, member);
        meet();
    }
}

void Team::wait_while(const std::atomic<uint32_t>& counter, uint32_t value) {
    for (int spin = 0; spin < kSpins; spin++) {
        if (counter.load(std::memory_order_acquire) != value) return;
        pause();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    num_sleepers_.fetch_add(1, std::memory_order_seq_cst);
    changed_.wait(lock, [&] { return counter.load(std::memory_order_seq_cst) != value; });
    num_sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

// Who falls asleep counts itself before it looks at the counter; who moves the counter
// looks for sleepers after that. One of the two sees the other.
void Team::advance(std::atomic<uint32_t>& counter) {
    counter.fetch_add(1, std::memory_order_seq_cst);
    if (num_sleepers_.load(std::memory_order_seq_cst) == 0) return;
    { std::lock_guard<std::mutex> lock(mutex_); }
    changed_.notify_all();
}

}  // namespace lanehost
