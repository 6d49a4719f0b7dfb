// hash64 on any processor: four chains of 64-bit multiplies.
#include "core/hash64.h"
#include "core/hash64_mix.h"

namespace cortiq::hash64_scalar {

std::uint64_t fold(const std::uint8_t* data, std::size_t words, std::uint64_t first) {
    std::uint64_t a = 0, b = 0, c = 0, d = 0, salts = 0, salt = first * kHashGolden;
    std::size_t i = 0;
    for (; i + 4 <= words; i += 4, data += 32) {
        hash_prefetch(data);
        a ^= hash_mix(hash_word(data));
        b ^= hash_mix(hash_word(data + 8));
        c ^= hash_mix(hash_word(data + 16));
        d ^= hash_mix(hash_word(data + 24));
        salts ^= salt ^ (salt + kHashGolden) ^ (salt + 2 * kHashGolden) ^ (salt + 3 * kHashGolden);
        salt += 4 * kHashGolden;
    }
    for (; i < words; i++, data += 8, salt += kHashGolden) {
        a ^= hash_mix(hash_word(data));
        salts ^= salt;
    }
    return hash_mix_end(a ^ b ^ c ^ d) ^ salts;
}

}  // namespace cortiq::hash64_scalar
