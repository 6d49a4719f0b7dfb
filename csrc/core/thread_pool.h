// Threads that run one function together (SPMD), the barrier between its steps, and shared-out work.
//
// A token of a small model has 100 to 150 joins, so waiting spins first: a spinning join costs a few hundred
// nanoseconds, waking a sleeping thread tens of microseconds. Whoever waits longer sleeps on a futex, which leaves its
// processor to a sibling that lost its own to another process.
#pragma once
#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace cortiq {

// A counter others may wait for: spinning for `spin_ns`, then asleep.
class Signal {
public:
    std::uint32_t read() const { return value_.load(std::memory_order_acquire); }
    void advance();  // by one; wakes everybody
    void wait_beyond(std::uint32_t seen, std::int64_t spin_ns);

private:
    alignas(64) std::atomic<std::uint32_t> value_{0};
    alignas(64) std::atomic<std::uint32_t> sleepers_{0};
};

class ThreadPool {
public:
    // `threads` participants, the caller of run() included. Throws Error{"OutOfMemory", "threads"} if they cannot be
    // started.
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int threads() const { return threads_; }
    std::uint64_t barriers() const { return barriers_; }

    // call(context, id) for every id < threads(), id 0 by the caller; returns when all are done. One run at a time.
    // The first run after fork() starts workers of the child's own.
    void run(void (*call)(void*, int), void* context);

    // Called by every participant of a run, equally often: nobody returns before all have called.
    void barrier(int id);

private:
    struct Worker;
    static void* entry(void* worker);
    void work(int id);
    void start();
    void stop();

    const int threads_;
    std::int64_t spin_ns_;       // inside a run
    std::int64_t linger_ns_;     // between runs
    pid_t owner_ = -1;           // process whose threads these are; -1: none yet
    std::uint64_t barriers_ = 0;
    std::vector<Worker> workers_;
    void (*call_)(void*, int) = nullptr;  // published by the job signal
    void* context_ = nullptr;
    struct Shared;
    std::unique_ptr<Shared> shared_;
};

// Chunks 0 .. total of one phase, shared out: each thread owns a contiguous slab and helps the others when it is
// through. Two sets of counters alternate, so that phase p can clear what phase p + 1 will use.
class Chunks {
public:
    explicit Chunks(int threads);
    // Begins phase `phase` for thread `id`: at the same point of every thread, with a barrier before the next phase.
    void enter(int id, std::uint64_t phase);
    // Next chunk for thread `id`, or false when none is left.
    bool take(int id, std::uint64_t phase, std::size_t total, std::size_t& chunk);

private:
    struct alignas(64) Counter {
        std::atomic<std::size_t> next{0};
    };
    std::size_t threads_;
    std::vector<Counter> counters_;  // [2][threads]
};

}  // namespace cortiq
