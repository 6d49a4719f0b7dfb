// hash64 for AVX2. There is no 64-bit vector multiply: two 32-bit ones make it. The scalar multiplier idles meanwhile,
// so it takes a share of the words.
#include <immintrin.h>

#include "core/hash64.h"
#include "core/hash64_mix.h"

namespace cortiq::hash64_avx2 {

namespace {

// Low 64 bits of a * by, with `crossed` holding by with its halves exchanged: low * low, plus both cross products, of
// which only the low 32 bits count, in the upper half.
inline __m256i multiply(__m256i a, __m256i by, __m256i crossed) {
    const __m256i cross = _mm256_mullo_epi32(a, crossed);
    const __m256i both = _mm256_add_epi32(cross, _mm256_slli_epi64(cross, 32));
    return _mm256_add_epi64(_mm256_mul_epu32(a, by), _mm256_blend_epi32(_mm256_setzero_si256(), both, 0xaa));
}

inline __m256i shifted(__m256i x) { return _mm256_xor_si256(x, _mm256_srli_epi64(x, 33)); }

inline __m256i all(std::uint64_t value) { return _mm256_set1_epi64x(static_cast<long long>(value)); }

std::uint64_t folded(__m256i x) {
    alignas(32) std::uint64_t lane[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lane), x);
    return lane[0] ^ lane[1] ^ lane[2] ^ lane[3];
}

// XOR of (first + i) * golden over `words`.
std::uint64_t fold_salts(std::size_t words, std::uint64_t first) {
    constexpr std::size_t kChains = 4;
    const __m256i step = all(4 * kChains * kHashGolden);
    __m256i salts[kChains], acc[kChains];
    for (std::size_t c = 0; c < kChains; c++) {
        alignas(32) std::uint64_t start[4];
        for (std::size_t j = 0; j < 4; j++) start[j] = (first + 4 * c + j) * kHashGolden;
        salts[c] = _mm256_load_si256(reinterpret_cast<const __m256i*>(start));
        acc[c] = _mm256_setzero_si256();
    }
    std::size_t i = 0;
    for (; i + 4 * kChains <= words; i += 4 * kChains)
        for (std::size_t c = 0; c < kChains; c++) {
            acc[c] = _mm256_xor_si256(acc[c], salts[c]);
            salts[c] = _mm256_add_epi64(salts[c], step);
        }
    std::uint64_t rest = 0;
    for (; i < words; i++) rest ^= (first + i) * kHashGolden;
    for (std::size_t c = 0; c < kChains; c++) rest ^= folded(acc[c]);
    return rest;
}

}  // namespace

std::uint64_t fold(const std::uint8_t* data, std::size_t words, std::uint64_t first) {
    const __m256i c1 = all(kHashC1), crossed1 = all(kHashC1 << 32 | kHashC1 >> 32);
    const __m256i c2 = all(kHashC2), crossed2 = all(kHashC2 << 32 | kHashC2 >> 32);
    constexpr std::size_t kVectors = 2, kScalars = 3, kStep = 4 * kVectors + kScalars;
    const std::uint64_t salts = fold_salts(words, first);
    __m256i acc = _mm256_setzero_si256();
    std::uint64_t mixed = 0;
    for (; words >= kStep; words -= kStep, data += 8 * kStep) {
        hash_prefetch(data);
        hash_prefetch(data + 64);
        for (std::size_t j = 0; j < kVectors; j++) {
            const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + 32 * j));
            acc = _mm256_xor_si256(acc, multiply(shifted(multiply(shifted(x), c1, crossed1)), c2, crossed2));
        }
        for (std::size_t j = 0; j < kScalars; j++) mixed ^= hash_mix(hash_word(data + 32 * kVectors + 8 * j));
    }
    mixed ^= folded(acc);
    for (; words > 0; words--, data += 8) mixed ^= hash_mix(hash_word(data));
    return hash_mix_end(mixed) ^ salts;
}

}  // namespace cortiq::hash64_avx2
