// hash64 of any bytes: the same on every instruction set, by several threads and in pieces, and as SPEC 8 defines it.
// Input: length of the pieces, threads, then the bytes.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/hash64.h"
#include "fuzz/input.h"

namespace {

std::uint64_t fmix(std::uint64_t k) {
    k ^= k >> 33;
    k *= 0xff51afd7ed558ccdULL;
    k ^= k >> 33;
    k *= 0xc4ceb9fe1a85ec53ULL;
    return k ^ k >> 33;
}

std::uint64_t definition(const std::vector<std::uint8_t>& bytes) {
    std::uint64_t folded = 0;
    for (std::size_t i = 0; 8 * i < bytes.size(); i++) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data() + 8 * i, std::min<std::size_t>(8, bytes.size() - 8 * i));
        folded ^= fmix(word) ^ i * 0x9e3779b97f4a7c15ULL;
    }
    return fmix(folded ^ bytes.size());
}

std::uint64_t in_pieces(const std::vector<std::uint8_t>& bytes, std::size_t piece, cortiq::Isa isa) {
    cortiq::Hash64 state(isa);
    for (std::size_t at = 0; at < bytes.size(); at += piece)
        state.update(bytes.data() + at, std::min(piece, bytes.size() - at));
    return state.digest();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::size_t piece = 8 * (1 + input.byte());
    const int threads = 1 + input.byte() % 3;
    const std::vector<std::uint8_t> bytes = input.rest();
    const std::uint64_t expected = definition(bytes);
    static const std::vector<cortiq::Isa> isas = cortiq::supported_isas();
    for (const cortiq::Isa isa : isas) {
        if (cortiq::hash64(bytes.data(), bytes.size(), isa, threads) != expected) std::abort();
        if (in_pieces(bytes, piece, isa) != expected) std::abort();
    }
    return 0;
}
