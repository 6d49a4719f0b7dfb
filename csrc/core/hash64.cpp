// hash64 of buffers and streams: splits the words between threads and ends the last one.
#include "core/hash64.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/hash64_mix.h"

namespace cortiq {

namespace {

// A thread is worth starting for this much.
constexpr std::size_t kBytesPerThread = std::size_t(2) << 20;

HashFold fold_of(Isa isa) {
    switch (isa) {
#if defined(__x86_64__)
        case Isa::avx512: return hash64_avx512::fold;
        case Isa::avx2: return hash64_avx2::fold;
#endif
        default: return hash64_scalar::fold;
    }
}

// The fold of whole words, split evenly.
std::uint64_t fold_parallel(HashFold fold, const std::uint8_t* data, std::size_t words, std::uint64_t first,
                            int threads) {
    const std::size_t wanted = static_cast<std::size_t>(std::max(threads, 1));
    const std::size_t parts = std::clamp<std::size_t>(8 * words / kBytesPerThread, 1, wanted);
    std::vector<std::uint64_t> partial(parts);
    auto work = [&](std::size_t part) {
        const std::size_t begin = words * part / parts, end = words * (part + 1) / parts;
        partial[part] = fold(data + 8 * begin, end - begin, first + begin);
    };
    std::vector<std::jthread> others;
    for (std::size_t part = 1; part < parts; part++) others.emplace_back(work, part);
    work(0);
    others.clear();  // joins
    std::uint64_t all = 0;
    for (std::uint64_t one : partial) all ^= one;
    return all;
}

}  // namespace

void Hash64::update(const std::uint8_t* data, std::size_t size, int threads) {
    if (length_ % 8 != 0)
        throw Error("UsageError", "hash64_chunk", "only the last chunk of a hash may end within a word");
    const std::size_t words = size / 8;
    if (words > 0) acc_ ^= fold_parallel(fold_of(isa_), data, words, length_ / 8, threads);
    if (size % 8 != 0) {
        std::uint8_t last[8] = {};
        std::memcpy(last, data + 8 * words, size % 8);
        acc_ ^= hash64_scalar::fold(last, 1, length_ / 8 + words);
    }
    length_ += size;
}

std::uint64_t Hash64::digest() const { return hash_mix_end(hash_mix(acc_ ^ length_)); }

std::uint64_t hash64(const std::uint8_t* data, std::size_t size, Isa isa, int threads) {
    Hash64 hash(isa);
    hash.update(data, size, threads);
    return hash.digest();
}

}  // namespace cortiq
