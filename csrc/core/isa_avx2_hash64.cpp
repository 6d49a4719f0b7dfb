// hash64 for AVX2, which has no 64-bit multiply. The halves of eight words stand in two vectors, where what a multiply and
// a shift need of them costs least: a shift by 33 only moves the high half, by one, into the low one.
#include <immintrin.h>

#include "core/hash64.h"
#include "core/hash64_mix.h"

namespace cortiq::hash64_avx2 {

namespace {

struct Halves {
    __m256i low, high;
};

inline __m256i spread(std::uint64_t half) { return _mm256_set1_epi32(static_cast<int>(half)); }

// (x ^ (x >> 33)) * by.
inline Halves mixed(Halves x, std::uint64_t by) {
    const __m256i by_low = spread(by & 0xffffffff), by_high = spread(by >> 32);
    const __m256i low = _mm256_xor_si256(x.low, _mm256_srli_epi32(x.high, 1));
    const __m256i even = _mm256_mul_epu32(low, by_low), odd = _mm256_mul_epu32(_mm256_srli_epi64(low, 32), by_low);
    const __m256i carried = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    const __m256i cross = _mm256_add_epi32(_mm256_mullo_epi32(x.high, by_low), _mm256_mullo_epi32(low, by_high));
    return {_mm256_mullo_epi32(low, by_low), _mm256_add_epi32(carried, cross)};
}

inline __m256i salts_from(std::uint64_t index) {
    alignas(32) std::uint64_t salt[4];
    for (std::uint64_t j = 0; j < 4; j++) salt[j] = (index + j) * kHashGolden;
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(salt));
}

std::uint64_t folded(__m256i x) {
    alignas(32) std::uint64_t lane[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lane), x);
    return lane[0] ^ lane[1] ^ lane[2] ^ lane[3];
}

// XOR of the eight words.
std::uint64_t folded(Halves x) {
    const __m256i a = _mm256_unpacklo_epi32(x.low, x.high), b = _mm256_unpackhi_epi32(x.low, x.high);
    return folded(_mm256_xor_si256(a, b));
}

}  // namespace

std::uint64_t fold(const std::uint8_t* data, std::size_t words, std::uint64_t first) {
    const __m256i none = _mm256_setzero_si256();
    const __m256i step = _mm256_set1_epi64x(static_cast<long long>(8 * kHashGolden));
    __m256i salts[2] = {salts_from(first), salts_from(first + 4)}, salt_acc[2] = {none, none};
    Halves acc = {none, none};
    std::size_t i = 0;
    for (; i + 8 <= words; i += 8, data += 64) {
        hash_prefetch(data);
        const __m256 a = _mm256_loadu_ps(reinterpret_cast<const float*>(data));
        const __m256 b = _mm256_loadu_ps(reinterpret_cast<const float*>(data + 32));
        const Halves x = {_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)), _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd))};
        const Halves y = mixed(mixed(x, kHashC1), kHashC2);
        acc = {_mm256_xor_si256(acc.low, y.low), _mm256_xor_si256(acc.high, y.high)};
        for (int j = 0; j < 2; j++) {
            salt_acc[j] = _mm256_xor_si256(salt_acc[j], salts[j]);
            salts[j] = _mm256_add_epi64(salts[j], step);
        }
    }
    std::uint64_t mixes = folded(acc), total = folded(_mm256_xor_si256(salt_acc[0], salt_acc[1]));
    for (; i < words; i++, data += 8) {
        mixes ^= hash_mix(hash_word(data));
        total ^= (first + i) * kHashGolden;
    }
    return hash_mix_end(mixes) ^ total;
}

}  // namespace cortiq::hash64_avx2
