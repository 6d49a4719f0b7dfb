// The loops of the sampler over a whole vocabulary. Included once per instruction set, inside that set's own namespace,
// which compiles the vectors below to that set's registers. Additions follow a fixed lane order and nothing is fused:
// every copy gives the same bits. No include guard: the includer brings the standard headers.

#if defined(__AVX2__)
using Floats = float __attribute__((vector_size(32)));
using Ints = std::int32_t __attribute__((vector_size(32)));
#else
using Floats = float __attribute__((vector_size(16)));
using Ints = std::int32_t __attribute__((vector_size(16)));
#endif
using Four = float __attribute__((vector_size(16)));
constexpr std::size_t kLanes = sizeof(Floats) / sizeof(float), kVectors = kScanBlock / kLanes;

inline Floats all(float x) { return Floats{} + x; }

inline Floats load(const float* from) {
    Floats v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline Four half(Floats v, std::size_t index) {
    Four part;
    std::memcpy(&part, reinterpret_cast<const char*>(&v) + index * sizeof part, sizeof part);
    return part;
}

inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

inline float largest(Floats v) {
    const Four a = half(v, 0), b = half(v, kLanes / 8);
    Four top = a > b ? a : b;
    const Four crossed = __builtin_shufflevector(top, top, 2, 3, 0, 1);
    top = top > crossed ? top : crossed;
    return top[0] > top[1] ? top[0] : top[1];
}

// exp(x) for x <= 0 with a relative error below 3e-7; 0 below -87.
inline Floats exp_negative(Floats x) {
    const Floats clamped = larger(x, all(-87.0f));
    // x = n ln2 + r: adding 1.5 * 2^23 rounds to the nearest integer n, which then sits in the low mantissa bits.
    const Floats shifted = clamped * 1.44269504f + 12582912.0f;
    const Floats n = shifted - 12582912.0f;
    const Floats r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
    // Taylor coefficients are close enough on |r| <= ln2 / 2: the first one left out adds less than 1e-8.
    Floats p = r * (1.0f / 5040) + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = (p * r) * r + r + 1.0f;
    Ints bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    bits = (bits - (0x4B400000 - 127)) << 23;
    Floats power;
    std::memcpy(&power, &bits, sizeof power);
    return x < all(-87.0f) ? all(0.0f) : p * power;
}

inline float exp_negative_one(float x) { return exp_negative(all(x))[0]; }

// A block of the vocabulary; the last one is filled up with `rest`.
struct Block {
    Floats v[kVectors];
};

inline Block load_block(const float* values, std::size_t n, std::size_t start, float rest) {
    alignas(32) float copy[kScanBlock];
    const float* from = values + start;
    if (start + kScanBlock > n) {
        for (std::size_t i = 0; i < kScanBlock; ++i) copy[i] = start + i < n ? from[i] : rest;
        from = copy;
    }
    Block block;
    for (std::size_t j = 0; j < kVectors; ++j) block.v[j] = load(from + j * kLanes);
    return block;
}

inline bool block_maxima(const float* values, std::size_t n, float* maxima) {
    constexpr float kLowest = -std::numeric_limits<float>::infinity();
    const Floats highest = all(std::numeric_limits<float>::max());
    Ints good = Ints{} - 1;
    for (std::size_t start = 0; start < n; start += kScanBlock) {
        const Block block = load_block(values, n, start, kLowest);
        Floats top = block.v[0];
        for (std::size_t j = 0; j < kVectors; ++j) {
            good &= block.v[j] <= highest;  // NaN compares false
            top = larger(block.v[j], top);
        }
        maxima[start / kScanBlock] = largest(top);
    }
    std::int32_t every = -1;
    for (std::size_t i = 0; i < kLanes; ++i) every &= good[i];
    return every == -1;
}

// The sum of a block: lane i of eight adds the values i, i + 8, i + 16 ... in pairs, and the lanes are added in halves.
inline float sum(const Block& block) {
    constexpr std::size_t k = 8 / kLanes;
    Floats part[k];
    for (std::size_t i = 0; i < k; ++i) {
        const Floats* v = block.v + i;
        part[i] = ((v[0] + v[k]) + (v[2 * k] + v[3 * k])) + ((v[4 * k] + v[5 * k]) + (v[6 * k] + v[7 * k]));
    }
    Four four = half(part[0], 0) + half(part[k - 1], kLanes / 8);
    four += __builtin_shufflevector(four, four, 2, 3, 0, 1);
    return four[0] + four[1];
}

inline double exp_sum(const float* values, std::size_t n, float top, float scale, float* out, float* sums) {
    double total = 0;
    for (std::size_t start = 0; start < n; start += kScanBlock) {
        Block block = load_block(values, n, start, -std::numeric_limits<float>::infinity());
        for (std::size_t j = 0; j < kVectors; ++j) block.v[j] = exp_negative((block.v[j] - top) * scale);
        if (out != nullptr) {
            const std::size_t length = n - start < kScanBlock ? n - start : kScanBlock;
            std::memcpy(out + start, &block, length * sizeof(float));
        }
        const float added = sum(block);
        if (sums != nullptr) sums[start / kScanBlock] = added;
        total += static_cast<double>(added);
    }
    return total;
}
