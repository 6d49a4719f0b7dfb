// hash64 for AVX2. There is no 64-bit vector multiply: three 32-bit ones make it. The scalar multiplier idles
// meanwhile, so it takes a share of the words.
#include <immintrin.h>

#include "core/hash64.h"
#include "core/hash64_mix.h"

namespace cortiq::hash64_avx2 {

namespace {

// Low 64 bits of a * by: low * low, plus both cross products shifted up.
inline __m256i multiply(__m256i a, __m256i low, __m256i high) {
    const __m256i cross = _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(a, 32), low), _mm256_mul_epu32(a, high));
    return _mm256_add_epi64(_mm256_mul_epu32(a, low), _mm256_slli_epi64(cross, 32));
}

inline __m256i shifted(__m256i x) { return _mm256_xor_si256(x, _mm256_srli_epi64(x, 33)); }

inline __m256i all(std::uint64_t value) { return _mm256_set1_epi64x(static_cast<long long>(value)); }

}  // namespace

std::uint64_t fold(const std::uint8_t* data, std::size_t words, std::uint64_t first) {
    const __m256i low1 = all(kHashC1 & 0xffffffff), high1 = all(kHashC1 >> 32);
    const __m256i low2 = all(kHashC2 & 0xffffffff), high2 = all(kHashC2 >> 32);
    constexpr std::size_t kVectors = 4, kScalars = 4, kStep = 4 * kVectors + kScalars;
    __m256i acc = _mm256_setzero_si256();
    std::uint64_t mixed = 0, salts = 0, salt = first * kHashGolden;
    std::size_t i = 0;
    for (; i + kStep <= words; i += kStep, data += 8 * kStep) {
        for (std::size_t j = 0; j < kVectors; j++) {
            const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + 32 * j));
            acc = _mm256_xor_si256(acc, multiply(shifted(multiply(shifted(x), low1, high1)), low2, high2));
        }
        for (std::size_t j = 0; j < kScalars; j++) mixed ^= hash_mix(hash_word(data + 32 * kVectors + 8 * j));
        for (std::size_t j = 0; j < kStep; j++) salts ^= salt + j * kHashGolden;
        salt += kStep * kHashGolden;
    }
    alignas(32) std::uint64_t lane[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lane), acc);
    mixed ^= lane[0] ^ lane[1] ^ lane[2] ^ lane[3];
    for (; i < words; i++, data += 8, salt += kHashGolden) {
        mixed ^= hash_mix(hash_word(data));
        salts ^= salt;
    }
    return hash_mix_end(mixed) ^ salts;
}

}  // namespace cortiq::hash64_avx2
