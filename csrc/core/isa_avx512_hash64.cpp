// hash64 for AVX-512, which has the 64-bit multiply.
#include <immintrin.h>

#include "core/hash64.h"
#include "core/hash64_mix.h"

namespace cortiq::hash64_avx512 {

namespace {

inline __m512i shifted(__m512i x) { return _mm512_xor_si512(x, _mm512_srli_epi64(x, 33)); }

inline __m512i all(std::uint64_t value) { return _mm512_set1_epi64(static_cast<long long>(value)); }

}  // namespace

std::uint64_t fold(const std::uint8_t* data, std::size_t words, std::uint64_t first) {
    const __m512i c1 = all(kHashC1), c2 = all(kHashC2), step = all(8 * kHashGolden);
    const __m512i index = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    __m512i salt = _mm512_add_epi64(all(first * kHashGolden), _mm512_mullo_epi64(index, all(kHashGolden)));
    __m512i mixes[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()}, salts = _mm512_setzero_si512();
    std::size_t i = 0;
    for (; i + 16 <= words; i += 16, data += 128) {
        for (std::size_t j = 0; j < 2; j++) {
            hash_prefetch(data + 64 * j);
            const __m512i x = _mm512_mullo_epi64(shifted(_mm512_loadu_si512(data + 64 * j)), c1);
            mixes[j] = _mm512_xor_si512(mixes[j], _mm512_mullo_epi64(shifted(x), c2));
            salts = _mm512_xor_si512(salts, salt);
            salt = _mm512_add_epi64(salt, step);
        }
    }
    alignas(64) std::uint64_t lane[8], salt_lane[8];
    _mm512_store_si512(lane, _mm512_xor_si512(mixes[0], mixes[1]));
    _mm512_store_si512(salt_lane, salts);
    std::uint64_t mixed = 0, total = 0;
    for (int j = 0; j < 8; j++) mixed ^= lane[j], total ^= salt_lane[j];
    for (; i < words; i++, data += 8) {
        mixed ^= hash_mix(hash_word(data));
        total ^= (first + i) * kHashGolden;
    }
    return hash_mix_end(mixed) ^ total;
}

}  // namespace cortiq::hash64_avx512
