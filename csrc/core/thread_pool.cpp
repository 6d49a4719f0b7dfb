#include "core/thread_pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#include "core/cpu.h"
#include "core/error.h"

namespace cortiq {

namespace {

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

std::int64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * std::int64_t{1000000000} + t.tv_nsec;
}

void futex(std::atomic<std::uint32_t>& word, int op, std::uint32_t value) {
    static_assert(sizeof(std::atomic<std::uint32_t>) == 4);
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), op | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
}

constexpr std::int64_t kSpinNs = 60'000;      // a step between two barriers is shorter; longer means preemption
constexpr std::int64_t kLingerNs = 1'000'000;  // a decode loop comes back sooner, and then nobody has to be woken

}  // namespace

// The one who sleeps announces itself before it looks at the value again, the one who advances looks for sleepers after
// it has: with sequential consistency one of the two notices the other.
void Signal::advance() {
    value_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst)) futex(value_, FUTEX_WAKE, INT_MAX);
}

void Signal::wait_beyond(std::uint32_t seen, std::int64_t spin_ns) {
    if (spin_ns > 0) {
        for (int i = 0; i < 64; i++) {
            if (value_.load(std::memory_order_acquire) != seen) return;
            relax();
        }
        const std::int64_t end = now_ns() + spin_ns;
        do {
            for (int i = 0; i < 32; i++) {
                if (value_.load(std::memory_order_acquire) != seen) return;
                relax();
            }
        } while (now_ns() < end);
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (value_.load(std::memory_order_seq_cst) == seen) futex(value_, FUTEX_WAIT, seen);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

struct ThreadPool::Worker {
    ThreadPool* pool = nullptr;
    int id = 0;
    pthread_t handle{};
};

struct ThreadPool::Shared {
    Signal job;      // advances when a run starts, or the pool stops
    Signal passed;   // advances when all have arrived at a barrier
    Signal done;     // advances when all workers are through
    alignas(64) std::atomic<int> arrived{0};
    alignas(64) std::atomic<int> working{0};
};

ThreadPool::ThreadPool(int threads) : threads_(threads) {
    if (threads < 1 || threads > 1024) throw Error("UsageError", "threads", "threads must be from 1 to 1024");
    // With fewer processors than threads, a spinning thread holds up the one it waits for.
    const bool crowded = threads > usable_cpus();
    spin_ns_ = crowded ? 0 : kSpinNs;
    linger_ns_ = crowded ? 0 : kLingerNs;
    workers_.resize(static_cast<std::size_t>(threads - 1));
    if (threads > 1) start();
}

ThreadPool::~ThreadPool() { stop(); }

void* ThreadPool::entry(void* argument) {
    const Worker* worker = static_cast<const Worker*>(argument);
    worker->pool->work(worker->id);
    return nullptr;
}

void ThreadPool::work(int id) {
    // Counted in step with run(): a worker that starts late still sees the first job.
    Shared& shared = *shared_;
    for (std::uint32_t seen = 0;; seen++) {
        shared.job.wait_beyond(seen, linger_ns_);
        if (call_ == nullptr) return;
        call_(context_, id);
        if (shared.working.fetch_sub(1, std::memory_order_acq_rel) == 1) shared.done.advance();
    }
}

void ThreadPool::start() {
    // In a forked child the parent's workers do not exist; what they share is abandoned with them.
    if (owner_ != -1) (void)shared_.release();
    shared_ = std::make_unique<Shared>();
    owner_ = getpid();
    for (std::size_t i = 0; i < workers_.size(); i++) {
        workers_[i] = Worker{this, static_cast<int>(i) + 1, {}};
        if (pthread_create(&workers_[i].handle, nullptr, entry, &workers_[i]) == 0) continue;
        workers_.resize(i);
        stop();
        workers_.resize(static_cast<std::size_t>(threads_ - 1));
        throw Error("OutOfMemory", "threads", "cannot start " + std::to_string(threads_) + " threads");
    }
}

void ThreadPool::stop() {
    if (owner_ == -1) return;
    if (owner_ != getpid()) {
        (void)shared_.release();
        return;
    }
    call_ = nullptr;
    shared_->job.advance();
    for (Worker& worker : workers_) pthread_join(worker.handle, nullptr);
    shared_.reset();
    owner_ = -1;
}

void ThreadPool::run(void (*call)(void*, int), void* context) {
    if (threads_ == 1) return call(context, 0);
    if (owner_ != getpid()) start();
    Shared& shared = *shared_;
    const std::uint32_t seen = shared.done.read();
    call_ = call;
    context_ = context;
    shared.working.store(threads_ - 1, std::memory_order_relaxed);
    shared.job.advance();
    call(context, 0);
    shared.done.wait_beyond(seen, spin_ns_);
}

void ThreadPool::barrier(int id) {
    if (id == 0) barriers_++;
    if (threads_ == 1) return;
    Shared& shared = *shared_;
    const std::uint32_t seen = shared.passed.read();
    if (shared.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < threads_)
        return shared.passed.wait_beyond(seen, spin_ns_);
    shared.arrived.store(0, std::memory_order_relaxed);
    shared.passed.advance();
}

Chunks::Chunks(int threads) : threads_(static_cast<std::size_t>(threads)), counters_(2 * threads_) {}

void Chunks::enter(int id, std::uint64_t phase) {
    counters_[(phase + 1) % 2 * threads_ + static_cast<std::size_t>(id)].next.store(0, std::memory_order_relaxed);
}

bool Chunks::take(int id, std::uint64_t phase, std::size_t total, std::size_t& chunk) {
    Counter* set = counters_.data() + phase % 2 * threads_;
    for (std::size_t i = 0; i < threads_; i++) {
        const std::size_t owner = (static_cast<std::size_t>(id) + i) % threads_;
        const std::size_t begin = total * owner / threads_, end = total * (owner + 1) / threads_;
        if (begin + set[owner].next.load(std::memory_order_relaxed) >= end) continue;
        chunk = begin + set[owner].next.fetch_add(1, std::memory_order_relaxed);
        if (chunk < end) return true;
    }
    return false;
}

}  // namespace cortiq
