// What ThreadSanitizer judges: teams of two to four threads, many rounds, work that all write and
// all read; and two ranks that exchange in one process. `scripts/sanitize` compiles and runs it.
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "exchange.h"
#include "team.h"

using namespace lanehost;

namespace {

void must(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "wrong: %s\n", what);
    std::exit(1);
}

// Each stage reads what all pieces of the one before wrote, with plain loads and stores.
struct Sums {
    Team* team;
    int stages;
    int pieces;
    std::vector<std::vector<int>> values;
};

void add_up(void* context, Turn turn) {
    Sums& sums = *static_cast<Sums*>(context);
    for (int stage = 1; stage <= sums.stages; stage++)
        sums.team->share(turn, sums.pieces, [&](int n) {
            const std::vector<int>& before = sums.values[stage - 1];
            sums.values[stage][n] = before[n] + before[(n + 1) % sums.pieces];
        });
}

void run_team(int size, int rounds) {
    Team team(size);
    for (int round = 0; round < rounds; round++) {
        Sums sums = {&team, 1 + round % 7, 1 + round % 5, {}};
        sums.values.assign(sums.stages + 1, std::vector<int>(sums.pieces, round));
        team.run(add_up, &sums, sums.stages);
        for (int value : sums.values.back()) must(value == round << sums.stages, "a sum of a team");
        // Now and then long enough for all to fall asleep.
        if (round % 64 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}

void run_rank(uint8_t* memory, int rank, int rounds) {
    const int watches[] = {-1, -1};
    Exchange exchange(memory, rank, 2, watches, 60);
    for (int round = 0; round < rounds; round++) {
        // Some fill more than one slot.
        std::vector<float> values(round % 50 ? 1 + round % 96 : 150'000, float(rank + 1));
        must(exchange.all_reduce(values.data(), int64_t(values.size())) == kDone, "an all-reduce");
        for (float value : values) must(value == 3, "a sum of ranks");
        const int64_t widths[] = {4, 8};
        std::vector<uint8_t> mine(3 * widths[rank], uint8_t(rank)), joined(3 * 12);
        must(exchange.gather(mine.data(), 3, widths, joined.data()) == kDone, "a gather");
        if (rank == 0) must(joined[3] == 0 && joined[4] == 1 && joined[12] == 0, "joined rows");
        int number = rank == round % 2 ? round : -1;
        must(exchange.broadcast(reinterpret_cast<uint8_t*>(&number), sizeof number, round % 2) ==
                 kDone, "a broadcast");
        must(number == round, "what was broadcast");
        if (round % 97 == rank) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    exchange.leave();
}

}  // namespace

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 1500;
    for (int size = 1; size <= 4; size++) run_team(size, rounds);
    // Many teams at once, each begun and ended.
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 2; caller++)
        callers.emplace_back([rounds] {
            for (int i = 0; i < 20; i++) run_team(2, rounds / 100);
        });
    for (std::thread& caller : callers) caller.join();
    uint8_t* memory = static_cast<uint8_t*>(std::aligned_alloc(4096, (Exchange::num_bytes(2) + 4095) / 4096 * 4096));
    std::fill(memory, memory + Exchange::num_bytes(2), uint8_t(0));
    std::thread other(run_rank, memory, 1, rounds);
    run_rank(memory, 0, rounds);
    other.join();
    std::free(memory);
    std::puts("threads: no races seen");
}
