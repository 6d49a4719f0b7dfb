#include "core/probe.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "core/cpu.h"
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

#if defined(__x86_64__)
// The same with 32-byte loads: with narrower ones a fast memory is not the limit.
__attribute__((target("avx2"))) std::uint64_t read_all_wide(const unsigned char* at, std::size_t lines) {
    __m256i seen[4] = {};
    for (std::size_t i = 0; i + 2 <= lines; i += 2, at += 2 * LINE)
        for (int k = 0; k < 4; ++k)
            seen[k] = _mm256_or_si256(seen[k], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at) + k));
    const __m256i all = _mm256_or_si256(_mm256_or_si256(seen[0], seen[1]), _mm256_or_si256(seen[2], seen[3]));
    std::uint64_t words[4];
    std::memcpy(words, &all, sizeof words);
    return words[0] | words[1] | words[2] | words[3];
}
#endif

std::uint64_t read_once(const unsigned char* at, std::size_t lines) {
#if defined(__x86_64__)
    if (isa_supported(Isa::avx2)) return read_all_wide(at, lines);
#endif
    return read_all(at, lines);
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
            sink.fetch_or(read_once(bytes + static_cast<std::size_t>(t) * share * LINE, share));
        });
    }
    while (ready.load() + 1 < threads) std::this_thread::yield();
    const auto start = std::chrono::steady_clock::now();
    go.store(true, std::memory_order_release);
    sink.fetch_or(read_once(bytes, share));
    for (auto& helper : helpers) helper.join();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace cortiq
