// Threads that work through phases together. A phase is a number of chunks; the next phase begins when all chunks of
// the last one are done - not when all threads have arrived. A thread that lost its processor to another process holds
// up the others only if it happens to be inside a chunk; otherwise they do its share, and it joins the phase it finds
// when it comes back.
//
// A token of a small model has 100 to 150 phases, so waiting spins first: a hand-over between spinning threads costs a
// few hundred nanoseconds, waking a sleeping one tens of microseconds. Whoever waits longer sleeps on a futex.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cortiq {

class ThreadPool;

// What one thread does of one phase.
class Turn {
public:
    int id() const { return id_; }
    // Next chunk for this thread: first from its own contiguous slab, then from the slabs of others. False when none
    // is left. Whatever belongs to the phase must be touched between a call that returned true and the end of the turn.
    bool next(std::size_t& chunk);

private:
    friend class ThreadPool;
    Turn(ThreadPool& pool, int id, std::uint32_t phase, std::size_t first)
        : pool_(pool), id_(id), phase_(phase), first_(first) {}
    ThreadPool& pool_;
    const int id_;
    const std::uint32_t phase_;
    std::size_t first_;
    std::size_t taken_ = 0;
};

// A sequence of phases. Calls are serialized where it says so, otherwise made by any threads at once.
struct Phases {
    void* context;
    // Number of chunks of the next phase, below kMostChunks; 0 ends the run. By one thread at a time, when everything
    // before is done.
    std::size_t (*advance)(void* context);
    // Works on the phase last advanced to, until turn.next() is false.
    void (*work)(void* context, Turn& turn);
};

class ThreadPool {
public:
    static constexpr std::size_t kMostChunks = std::size_t{1} << 20;

    // `threads` participants, the caller of run() included. Throws Error{"OutOfMemory", "threads"} if they cannot be
    // started.
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int threads() const { return threads_; }
    std::uint64_t phases() const { return phases_; }  // run so far; not while a run is on

    // Returns when the last phase is done. One run at a time. After fork() the child starts workers of its own.
    void run(const Phases& phases);

private:
    friend class Turn;
    struct Worker;
    struct Shared;
    static void* entry(void* worker);
    void participate(int id);
    bool take(int id, std::uint32_t phase, std::size_t& chunk);
    void publish(std::size_t total);
    void wait_beyond(std::uint32_t phase);
    void start();
    void stop();

    const int threads_;
    std::int64_t spin_ns_;    // inside a run
    std::int64_t linger_ns_;  // between runs
    pid_t owner_ = -1;        // process whose threads these are; -1: none
    std::uint64_t phases_ = 0;
    Phases work_{};  // of the run in progress
    std::vector<Worker> workers_;
    std::unique_ptr<Shared> shared_;
};

}  // namespace cortiq
