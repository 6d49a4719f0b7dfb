#include "core/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <string>

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

constexpr std::int64_t kSpinNs = 60'000;       // most phases are shorter; longer means that somebody was preempted
constexpr std::int64_t kLingerNs = 1'000'000;  // a decode loop comes back sooner, and then nobody has to be woken

// What is left of a thread's slab, in one word so that it changes as a whole: chunks [next, end) of a phase. A thread
// that comes back late compares with a phase that is over and takes nothing.
struct Slab {
    static constexpr int kBits = 20;
    static constexpr std::uint64_t kMask = (std::uint64_t{1} << kBits) - 1;

    std::uint64_t word;
    static Slab of(std::uint32_t phase, std::size_t next, std::size_t end) {
        return {std::uint64_t{phase} << (2 * kBits) | static_cast<std::uint64_t>(end) << kBits | next};
    }
    bool belongs_to(std::uint32_t phase) const { return (word ^ of(phase, 0, 0).word) >> (2 * kBits) == 0; }
    std::size_t next() const { return word & kMask; }
    std::size_t end() const { return (word >> kBits) & kMask; }
};

struct alignas(64) SharedSlab {
    std::atomic<std::uint64_t> word{0};
};

}  // namespace

struct ThreadPool::Worker {
    ThreadPool* pool = nullptr;
    int id = 0;
    pthread_t handle{};
};

struct ThreadPool::Shared {
    explicit Shared(std::size_t threads) : slabs(threads) {}
    alignas(64) std::atomic<std::uint32_t> phase{0};
    alignas(64) std::atomic<std::uint32_t> sleepers{0};
    alignas(64) std::atomic<std::size_t> pending{0};  // chunks of the phase that are not done
    alignas(64) std::atomic<std::uint32_t> idle{0};   // the phase without chunks that ended the last run
    std::atomic<bool> stopping{false};
    std::vector<SharedSlab> slabs;
};

bool Turn::next(std::size_t& chunk) {
    if (taken_ == 0)
        chunk = first_;
    else if (!pool_.take(id_, phase_, chunk))
        return false;
    taken_++;
    return true;
}

ThreadPool::ThreadPool(int threads) : threads_(threads) {
    if (threads < 1 || threads > 1024) throw Error("UsageError", "threads", "threads must be from 1 to 1024");
    // With fewer processors than threads, a spinning thread holds up the one it waits for.
    const bool crowded = threads > usable_cpus();
    spin_ns_ = crowded ? 0 : kSpinNs;
    linger_ns_ = crowded ? 0 : kLingerNs;
    workers_.resize(static_cast<std::size_t>(threads - 1));
    start();
}

ThreadPool::~ThreadPool() { stop(); }

void* ThreadPool::entry(void* argument) {
    const Worker* worker = static_cast<const Worker*>(argument);
    worker->pool->participate(worker->id);
    return nullptr;
}

void ThreadPool::start() {
    // In a forked child the parent's workers do not exist; what they share is abandoned with them.
    if (owner_ != -1) (void)shared_.release();
    shared_ = std::make_unique<Shared>(static_cast<std::size_t>(threads_));
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
    shared_->stopping.store(true, std::memory_order_relaxed);
    publish(0);
    for (Worker& worker : workers_) pthread_join(worker.handle, nullptr);
    shared_.reset();
    owner_ = -1;
}

// The next chunk of `phase` for thread `id`, if that phase is still on.
bool ThreadPool::take(int id, std::uint32_t phase, std::size_t& chunk) {
    std::vector<SharedSlab>& slabs = shared_->slabs;
    for (std::size_t i = 0; i < slabs.size(); i++) {
        const std::size_t owner = static_cast<std::size_t>(id) + i;
        std::atomic<std::uint64_t>& word = slabs[owner < slabs.size() ? owner : owner - slabs.size()].word;
        Slab slab{word.load(std::memory_order_acquire)};
        while (slab.belongs_to(phase) && slab.next() < slab.end()) {
            if (word.compare_exchange_weak(slab.word, slab.word + 1, std::memory_order_acquire)) {
                chunk = slab.next();
                return true;
            }
        }
    }
    return false;
}

// Opens the next phase, or with 0 chunks ends the run.
void ThreadPool::publish(std::size_t total) {
    Shared& shared = *shared_;
    const std::uint32_t phase = shared.phase.load(std::memory_order_relaxed) + 1;
    const std::size_t threads = shared.slabs.size();
    if (total == 0) shared.idle.store(phase, std::memory_order_relaxed);
    shared.pending.store(total, std::memory_order_relaxed);
    phases_ += total != 0;
    for (std::size_t t = 0; t < threads; t++)
        shared.slabs[t].word.store(Slab::of(phase, total * t / threads, total * (t + 1) / threads).word,
                                   std::memory_order_release);
    // The one who sleeps announces itself before it looks at the phase again, the one who publishes looks for sleepers
    // after it has: with sequential consistency one of the two notices the other.
    shared.phase.store(phase, std::memory_order_seq_cst);
    if (shared.sleepers.load(std::memory_order_seq_cst) != 0 && shared.sleepers.exchange(0) != 0)
        futex(shared.phase, FUTEX_WAKE, INT_MAX);
}

void ThreadPool::wait_beyond(std::uint32_t phase) {
    Shared& shared = *shared_;
    const std::int64_t spin_ns = shared.idle.load(std::memory_order_relaxed) == phase ? linger_ns_ : spin_ns_;
    if (spin_ns > 0) {
        const std::int64_t end = now_ns() + spin_ns;
        do {
            for (int i = 0; i < 64; i++) {
                if (shared.phase.load(std::memory_order_acquire) != phase) return;
                relax();
            }
        } while (now_ns() < end);
    }
    // Announced anew each time: whoever wakes the sleepers, be it for an earlier phase, has struck them off.
    do {
        shared.sleepers.fetch_add(1, std::memory_order_seq_cst);
        if (shared.phase.load(std::memory_order_seq_cst) == phase) futex(shared.phase, FUTEX_WAIT, phase);
    } while (shared.phase.load(std::memory_order_seq_cst) == phase);
}

// The life of a worker; for the caller of run(), until the run is over.
void ThreadPool::participate(int id) {
    Shared& shared = *shared_;
    for (;;) {
        const std::uint32_t phase = shared.phase.load(std::memory_order_acquire);
        std::size_t chunk = 0;
        if (take(id, phase, chunk)) {
            Turn turn(*this, id, phase, chunk);
            work_.work(work_.context, turn);
            // Whoever finishes the phase opens the next one.
            if (shared.pending.fetch_sub(turn.taken_, std::memory_order_acq_rel) == turn.taken_)
                publish(work_.advance(work_.context));
            continue;
        }
        if (shared.stopping.load(std::memory_order_relaxed)) return;
        if (id == 0 && shared.idle.load(std::memory_order_relaxed) == phase) return;
        wait_beyond(phase);
    }
}

void ThreadPool::run(const Phases& phases) {
    if (owner_ != getpid()) start();
    work_ = phases;
    publish(work_.advance(work_.context));
    participate(0);
}

}  // namespace cortiq
