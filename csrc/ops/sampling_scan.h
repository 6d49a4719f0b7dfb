// The loops of the sampler over a whole vocabulary. Included once per instruction set, inside that set's own namespace,
// so that the compiler vectorizes each copy for it. Additions follow a fixed lane order and nothing is fused: every
// copy gives the same bits. No include guard: the includer brings the standard headers.

constexpr std::size_t kLanes = 16;

// exp(x) for x <= 0 with a relative error below 3e-7; 0 below -87.
inline float exp_negative(float x) {
    const float clamped = x < -87.0f ? -87.0f : x;
    // x = n ln2 + r: adding 1.5 * 2^23 rounds to the nearest integer n, which then sits in the low mantissa bits.
    const float shifted = clamped * 1.44269504f + 12582912.0f;
    const float n = shifted - 12582912.0f;
    const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
    // Taylor coefficients are close enough on |r| <= ln2 / 2: the first one left out is below 1e-8.
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = (p * r) * r + r + 1.0f;
    std::int32_t bits;
    std::memcpy(&bits, &shifted, 4);
    bits = (bits - 0x4B400000 + 127) << 23;
    float power;
    std::memcpy(&power, &bits, 4);
    return x < -87.0f ? 0.0f : p * power;
}

inline bool block_maxima(const float* values, std::size_t n, float* maxima) {
    constexpr float kLowest = -std::numeric_limits<float>::infinity(), kHighest = std::numeric_limits<float>::max();
    std::int32_t bad[kLanes] = {};
    for (std::size_t start = 0; start < n; start += kScanBlock) {
        const float* block = values + start;
        float top[kLanes];
        for (std::size_t i = 0; i < kLanes; ++i) top[i] = kLowest;
        const std::size_t whole = start + kScanBlock <= n ? kScanBlock : 0;
        for (std::size_t j = 0; j < whole; j += kLanes)
            for (std::size_t i = 0; i < kLanes; ++i) {
                const float v = block[j + i];
                bad[i] |= v <= kHighest ? 0 : -1;  // NaN compares false
                top[i] = v > top[i] ? v : top[i];
            }
        for (std::size_t i = whole; i < kScanBlock && start + i < n; ++i) {
            const float v = block[i];
            bad[i % kLanes] |= v <= kHighest ? 0 : -1;
            top[i % kLanes] = v > top[i % kLanes] ? v : top[i % kLanes];
        }
        for (std::size_t half = kLanes / 2; half > 0; half /= 2)
            for (std::size_t i = 0; i < half; ++i) top[i] = top[i] > top[i + half] ? top[i] : top[i + half];
        maxima[start / kScanBlock] = top[0];
    }
    std::int32_t any = 0;
    for (std::size_t i = 0; i < kLanes; ++i) any |= bad[i];
    return any == 0;
}

inline double exp_sum(const float* values, std::size_t n, float top, float scale, float* out, float* sums) {
    double total = 0;
    for (std::size_t start = 0; start < n; start += kScanBlock) {
        alignas(64) float block[kScanBlock] = {};
        const std::size_t length = start + kScanBlock <= n ? kScanBlock : n - start;
        if (length == kScanBlock)
            for (std::size_t i = 0; i < kScanBlock; ++i) block[i] = exp_negative((values[start + i] - top) * scale);
        else
            for (std::size_t i = 0; i < length; ++i) block[i] = exp_negative((values[start + i] - top) * scale);
        if (out != nullptr) std::memcpy(out + start, block, length * sizeof(float));
        float lane[kLanes];
        for (std::size_t i = 0; i < kLanes; ++i) lane[i] = (block[i] + block[i + 16]) + (block[i + 32] + block[i + 48]);
        for (std::size_t half = kLanes / 2; half > 0; half /= 2)
            for (std::size_t i = 0; i < half; ++i) lane[i] += lane[i + half];
        if (sums != nullptr) sums[start / kScanBlock] = lane[0];
        total += static_cast<double>(lane[0]);
    }
    return total;
}
