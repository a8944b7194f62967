#include "team.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace lanehost {

void Team::pause() {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

Team::Team(int size) : size_(size < 1 ? 1 : size) {
    for (int member = 1; member < size_; member++)
        threads_.emplace_back([this, member] { serve(member); });
}

Team::~Team() {
    round_.store(-1);
    wake();
    for (std::thread& thread : threads_) thread.join();
}

void Team::run(Work work, void* context, int num_stages) {
    if (num_stages > max_stages_) {
        stages_.reset(new Stage[num_stages]);
        runs_.reset(new Run[num_stages * size_]);
        max_stages_ = num_stages;
    }
    for (int stage = 0; stage < num_stages; stage++)
        stages_[stage].done.store(0, std::memory_order_relaxed);
    for (int run = 0; run < num_stages * size_; run++)
        runs_[run].taken.store(0, std::memory_order_relaxed);
    work_ = work;
    context_ = context;
    const int round = round_.load() % 1'000'000'000 + 1;
    open_.store(round);
    round_.store(round);
    wake();
    work(context, {0, 0});
    // Who has not come by now is not waited for. Who counts itself in after this sees that
    // the round is closed; who did before is seen here.
    open_.store(0);
    wait([&] { return inside_.load() == 0; });
}

void Team::serve(int member) {
    for (int seen = 0;;) {
        wait([&] { return round_.load() != seen; });
        seen = round_.load();
        if (seen < 0) return;
        inside_.fetch_add(1);
        if (open_.load() == seen) work_(context_, {member, 0});
        if (inside_.fetch_sub(1) == 1) wake();
    }
}

// Who falls asleep counts itself before it looks again; who changes something looks for
// sleepers after that. One of the two sees the other.
void Team::wake() {
    if (num_sleepers_.load() == 0) return;
    { std::lock_guard<std::mutex> lock(mutex_); }
    changed_.notify_all();
}

}  // namespace lanehost
