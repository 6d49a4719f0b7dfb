// One word of hash64. Internal linkage on purpose: included by translation units of several instruction sets.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cortiq {

inline constexpr std::uint64_t kHashGolden = 0x9E3779B97F4A7C15ull;
// Mixing fills the processor's window of instructions, so the loads that would start a stream from memory come late:
// the loops ask for the bytes this far ahead. Beyond the end of the data it does nothing.
inline constexpr std::size_t kHashAhead = 4096;
inline constexpr std::uint64_t kHashC1 = 0xFF51AFD7ED558CCDull, kHashC2 = 0xC4CEB9FE1A85EC53ull;

[[maybe_unused]] static inline std::uint64_t hash_word(const std::uint8_t* p) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    return word;
}

[[maybe_unused]] static inline void hash_prefetch(const std::uint8_t* p) { __builtin_prefetch(p + kHashAhead); }

// fmix without its last step, x ^= x >> 33. The empty statement keeps x in a general register: without it the compiler
// would turn a loop of these into vector code that emulates the multiplication.
[[maybe_unused]] static inline std::uint64_t hash_mix(std::uint64_t x) {
    x = (x ^ (x >> 33)) * kHashC1;
    asm("" : "+r"(x));
    return (x ^ (x >> 33)) * kHashC2;
}

[[maybe_unused]] static inline std::uint64_t hash_mix_end(std::uint64_t x) { return x ^ (x >> 33); }

}  // namespace cortiq
