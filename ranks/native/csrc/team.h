// A few threads that run one function together, and meet at barriers in it.
//
// Waiting is spinning for some microseconds, then sleeping: whoever shares the machine is
// not robbed of its core for long. The caller of `run` is member 0.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace lanehost {

class Team {
   public:
    using Work = void (*)(void* context, int member);

    explicit Team(int size);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int size() const { return size_; }
    // Run `work` on every member; returns when all have ended.
    void run(Work work, void* context);
    // Wait until all members are here; for use within `run`.
    void meet();

   private:
    void serve(int member);
    void wait_while(const std::atomic<uint32_t>& counter, uint32_t value);
    void advance(std::atomic<uint32_t>& counter);

    const int size_;
    Work work_ = nullptr;
    void* context_ = nullptr;
    bool is_ending_ = false;
    alignas(64) std::atomic<uint32_t> round_{0};
    alignas(64) std::atomic<uint32_t> arrived_{0};
    alignas(64) std::atomic<uint32_t> met_{0};
    std::atomic<int> num_sleepers_{0};
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::thread> threads_;
};

}  // namespace lanehost
