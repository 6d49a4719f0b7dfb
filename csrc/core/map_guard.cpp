#include "core/map_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "core/error.h"

namespace cortiq {

namespace {

constexpr std::size_t kSlots = 4096;

// `begin` is written last and cleared first, so that the handler sees a range only while it is whole.
struct Slot {
    std::atomic<std::uintptr_t> begin{0}, end{0};
    std::atomic<bool> lost{false};
};

Slot slots[kSlots];
std::atomic<std::size_t> used{0};  // slots at and beyond this one have never been taken
std::atomic<std::uint64_t> pages{0};
std::uintptr_t page_nbytes = 4096;
struct sigaction previous;
std::mutex mutex;  // over taking and giving back slots

Slot* holder(std::uintptr_t at) {
    for (std::size_t i = 0; i < used.load(std::memory_order_acquire); i++) {
        const std::uintptr_t begin = slots[i].begin.load(std::memory_order_acquire);
        if (begin != 0 && begin <= at && at < slots[i].end.load(std::memory_order_acquire)) return &slots[i];
    }
    return nullptr;
}

// Runs inside the signal: nothing but atomics and one system call. The read that faulted is repeated on return.
void on_fault(int number, siginfo_t* info, void* context) {
    const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
    if (Slot* slot = info->si_code > 0 ? holder(at) : nullptr) {
        slot->lost.store(true);
        pages.fetch_add(1);
        void* page = reinterpret_cast<void*>(at / page_nbytes * page_nbytes);
        if (mmap(page, page_nbytes, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == page) return;
    }
    if (previous.sa_flags & SA_SIGINFO) return previous.sa_sigaction(number, info, context);
    if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(number);
    signal(number, SIG_DFL);  // the repeated read ends the process, as without this guard
}

void install() {
    page_nbytes = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previous);
}

}  // namespace

MapGuard::MapGuard(const void* begin, std::size_t nbytes) : slot_(0) {
    const std::lock_guard lock(mutex);
    static const bool installed = (install(), true);
    (void)installed;
    while (slot_ < kSlots && slots[slot_].begin.load() != 0) slot_++;
    if (slot_ == kSlots) throw Error("Limit", "mappings", "too many files are mapped at a time");
    Slot& slot = slots[slot_];
    const auto first = reinterpret_cast<std::uintptr_t>(begin);
    slot.lost.store(false);
    slot.end.store(first + nbytes);
    slot.begin.store(first, std::memory_order_release);
    if (slot_ >= used.load()) used.store(slot_ + 1, std::memory_order_release);
}

MapGuard::~MapGuard() {
    const std::lock_guard lock(mutex);
    slots[slot_].begin.store(0, std::memory_order_release);
}

bool MapGuard::lost() const { return slots[slot_].lost.load(); }

std::uint64_t lost_pages() { return pages.load(std::memory_order_relaxed); }

bool lost_at(const void* address) {
    const Slot* slot = holder(reinterpret_cast<std::uintptr_t>(address));
    return slot != nullptr && slot->lost.load();
}

}  // namespace cortiq
