#include "core/probe.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "core/error.h"

namespace cortiq {

namespace {

constexpr std::size_t LINE = 64;

// The OR of all words: eight independent accumulators, so that only loads can be the limit.
std::uint64_t read_all(const unsigned char* at, std::size_t lines) {
    std::uint64_t seen[8] = {};
    for (std::size_t i = 0; i < lines; ++i, at += LINE) {
        std::uint64_t words[8];
        std::memcpy(words, at, LINE);
        for (int k = 0; k < 8; ++k) seen[k] |= words[k];
    }
    for (int k = 1; k < 8; ++k) seen[0] |= seen[k];
    return seen[0];
}

}  // namespace

double read_seconds(const void* data, std::size_t nbytes, int threads) {
    if (threads < 1) throw Error("UsageError", "threads", "the number of threads must be at least 1");
    const auto* bytes = static_cast<const unsigned char*>(data);
    const std::size_t lines = nbytes / LINE;
    const std::size_t share = lines / static_cast<std::size_t>(threads);
    std::atomic<int> ready{0};
    std::atomic<bool> go{false};
    std::atomic<std::uint64_t> sink{0};
    std::vector<std::thread> helpers;
    for (int t = 1; t < threads; ++t) {
        helpers.emplace_back([&, t] {
            ready.fetch_add(1);
            while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
            sink.fetch_or(read_all(bytes + static_cast<std::size_t>(t) * share * LINE, share));
        });
    }
    while (ready.load() + 1 < threads) std::this_thread::yield();
    const auto start = std::chrono::steady_clock::now();
    go.store(true, std::memory_order_release);
    sink.fetch_or(read_all(bytes, share));
    for (auto& helper : helpers) helper.join();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace cortiq
