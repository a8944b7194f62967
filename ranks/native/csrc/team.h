// A few threads that work through the same stages, and share the work of each.
//
// A stage is done when all its pieces are. Each member has a run of them, which lie side by side
// in memory, so a processor fetches on from one to the next; who is done with its own takes what
// others have not begun. So a member whose core is taken away before its first piece of a stage
// holds nobody up: the cores of a machine are shared, also with the master. It does from then until
// it has counted its pieces, once for all of them. Waiting is spinning for some microseconds, then
// sleeping. The caller of `run` is member 0.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace lanehost {

// One member's way through a run.
struct Turn {
    int member;
    int stage;
};

class Team {
   public:
    using Work = void (*)(void* context, Turn turn);

    explicit Team(int size);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int size() const { return size_; }
    // Stages that have ended, of all runs so far; from any thread.
    uint64_t num_stages() const { return num_stages_.load(std::memory_order_relaxed); }
    // Run `work` on the members that come; returns when all stages are done and all have left.
    void run(Work work, void* context, int num_stages);

    // The next stage, within `run`: call piece(n) once for each n below `count`, on any member;
    // returns when all of them have returned. All members go through the same stages.
    template <typename Piece>
    void share(Turn& turn, int count, const Piece& piece) {
        const int stage = turn.stage++;
        std::atomic<int>& done = stages_[stage].done;
        int mine = 0;
        for (int i = 0, owner = turn.member; i < size_; i++, owner = owner + 1 < size_ ? owner + 1 : 0) {
            std::atomic<int>& taken = runs_[stage * size_ + owner].taken;
            const int first = first_of(owner, count), length = first_of(owner + 1, count) - first;
            while (taken.load(std::memory_order_relaxed) < length) {
                const int n = taken.fetch_add(1, std::memory_order_relaxed);
                if (n >= length) break;
                piece(first + n);
                mine++;
            }
        }
        if (mine && done.fetch_add(mine) + mine == count) wake();
        wait([&] { return done.load() == count; });
        // One writer, so no addition that locks the bus.
        if (turn.member == 0)
            num_stages_.store(num_stages() + 1, std::memory_order_relaxed);
    }

   private:
    struct alignas(64) Stage {
        std::atomic<int> done{0};
    };
    struct alignas(64) Run {
        std::atomic<int> taken{0};
    };

    // Where a member's run of pieces begins; a single piece is that of member 0.
    int first_of(int member, int count) const {
        return int((int64_t(count) * member + size_ - 1) / size_);
    }

    void serve(int member);
    static void pause();

    template <typename Reached>
    void wait(const Reached& reached) {
        for (int spin = 0; spin < kSpins; spin++) {
            if (reached()) return;
            pause();
        }
        std::unique_lock<std::mutex> lock(mutex_);
        num_sleepers_.fetch_add(1);
        changed_.wait(lock, reached);
        num_sleepers_.fetch_sub(1);
    }
    void wake();

    // Some tens of microseconds: the longest that members of a step usually wait for another.
    static constexpr int kSpins = 1500;

    const int size_;
    Work work_ = nullptr;
    void* context_ = nullptr;
    std::unique_ptr<Stage[]> stages_;
    std::unique_ptr<Run[]> runs_;  // of all members for the first stage, then for the next
    int max_stages_ = 0;
    alignas(64) std::atomic<int> round_{0};  // the last that was begun; negative: end
    std::atomic<int> open_{0};               // the round that may be entered; 0: none
    alignas(64) std::atomic<int> inside_{0};
    std::atomic<int> num_sleepers_{0};
    alignas(64) std::atomic<uint64_t> num_stages_{0};
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::thread> threads_;
};

}  // namespace lanehost
