// hash64 of SPEC 8: XOR over the 64-bit words w_i of fmix(w_i) ^ (i * golden), then fmix(that ^ length).
//
// Everything is XOR, so words are folded in any order and by any number of threads. The last step of fmix is linear
// over XOR and is done once, on the fold.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/cpu.h"

namespace cortiq {

class Hash64 {
public:
    explicit Hash64(Isa isa) : isa_(isa) {}
    // Appends. Every chunk but the last is a multiple of 8 bytes; throws Error{"UsageError", "hash64_chunk"} otherwise.
    // A large chunk is shared between up to `threads` threads, caller included.
    void update(const std::uint8_t* data, std::size_t size, int threads = 1);
    std::uint64_t digest() const;

private:
    Isa isa_;
    std::uint64_t acc_ = 0, length_ = 0;
};

std::uint64_t hash64(const std::uint8_t* data, std::size_t size, Isa isa, int threads = 1);

// XOR of fmix(w_i) ^ ((first + i) * golden) over `words` whole words.
using HashFold = std::uint64_t (*)(const std::uint8_t* data, std::size_t words, std::uint64_t first);
namespace hash64_scalar {
std::uint64_t fold(const std::uint8_t* data, std::size_t words, std::uint64_t first);
}
namespace hash64_avx2 {
std::uint64_t fold(const std::uint8_t* data, std::size_t words, std::uint64_t first);
}
namespace hash64_avx512 {
std::uint64_t fold(const std::uint8_t* data, std::size_t words, std::uint64_t first);
}

}  // namespace cortiq
