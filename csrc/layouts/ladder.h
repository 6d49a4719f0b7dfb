// The ladder of scales of q4tp and q2tp: cortiq/layouts/ladder.py, operation by operation. Per row [f16 lo][f16 step],
// t[0] = exp2(lo), t[c] = t[c - 1] * exp2(step); per group a code of 5 bits, least significant bit first.
// exp2 is spelt out, log2 is that of double precision, rounded to f32.
#pragma once
#include "layouts/codec.h"
#include "layouts/floats.h"
#include "layouts/q4_search.h"

namespace cortiq::CORTIQ_CODEC {

static constexpr int kRungs = 32;
static constexpr float kDead = -__builtin_inff();  // in place of the log scale of a group of zeros

struct Params {
    std::uint16_t low, step;
};

// 2^(k / 32), correctly rounded.
static constexpr double kRoots[] = {
    0x1.0000000000000p+0, 0x1.059b0d3158574p+0, 0x1.0b5586cf9890fp+0, 0x1.11301d0125b51p+0,
    0x1.172b83c7d517bp+0, 0x1.1d4873168b9aap+0, 0x1.2387a6e756238p+0, 0x1.29e9df51fdee1p+0,
    0x1.306fe0a31b715p+0, 0x1.371a7373aa9cbp+0, 0x1.3dea64c123422p+0, 0x1.44e086061892dp+0,
    0x1.4bfdad5362a27p+0, 0x1.5342b569d4f82p+0, 0x1.5ab07dd485429p+0, 0x1.6247eb03a5585p+0,
    0x1.6a09e667f3bcdp+0, 0x1.71f75e8ec5f74p+0, 0x1.7a11473eb0187p+0, 0x1.82589994cce13p+0,
    0x1.8ace5422aa0dbp+0, 0x1.93737b0cdc5e5p+0, 0x1.9c49182a3f090p+0, 0x1.a5503b23e255dp+0,
    0x1.ae89f995ad3adp+0, 0x1.b7f76f2fb5e47p+0, 0x1.c199bdd85529cp+0, 0x1.cb720dcef9069p+0,
    0x1.d5818dcfba487p+0, 0x1.dfc97337b9b5fp+0, 0x1.ea4afa2a490dap+0, 0x1.f50765b6e4540p+0,
};

// 2^(k / 32 + r) = 2^(k / 32) * (1 + r * (C1 + r * (C2 + r * C3))), |r| <= 1 / 64. NaN, which no valid payload holds,
// counts as infinity: it has no whole part.
static inline float exp2_f32(float value) {
    constexpr double kC3 = 0x1.c6af84b912394p-5, kC2 = 0x1.ebfce50fac4f3p-3, kC1 = 0x1.62e42ff0c52d6p-1;
    constexpr double kBeyond = 160, kToWhole = 0x1.8p52;
    const double x = !(value < kBeyond) ? kBeyond : value < -kBeyond ? -kBeyond : double(value);
    const double whole = (x * 32 + kToWhole) - kToWhole, rest = x - whole / 32;
    const std::int64_t part = std::int64_t(whole);
    std::uint64_t bits;
    std::memcpy(&bits, &kRoots[part & 31], 8);
    bits += std::uint64_t(part >> 5) << 52;
    double scale;
    std::memcpy(&scale, &bits, 8);
    return float(((kC3 * rest + kC2) * (rest * rest) + (kC1 * rest + 1)) * scale);
}

static inline float log2_rounded(float x) { return float(__builtin_log2(double(x))); }

static void expand_ladder(Params params, float* rungs) {
    const float ratio = exp2_f32(f32_from_f16(params.step));
    rungs[0] = exp2_f32(f32_from_f16(params.low));
    for (int code = 1; code < kRungs; code++) rungs[code] = rungs[code - 1] * ratio;
}

static inline Params load_params(const std::uint8_t* from) { return {load_u16(from), load_u16(from + 2)}; }

static inline void store_params(std::uint8_t* out, Params params) {
    store_u16(out, params.low);
    store_u16(out + 2, params.step);
}

// A row of a payload whose groups have `group_nbytes` bytes of weights.
struct LadderView {
    const std::uint8_t* weights;
    Params params;
    const std::uint8_t* codes;
};

static inline LadderView ladder_view(const MatrixView& w, std::size_t row, std::size_t group_nbytes) {
    const std::size_t groups = w.cols / kGroup32, code_nbytes = (5 * groups + 7) / 8;
    const std::uint8_t* params = w.data + w.rows * groups * group_nbytes;
    return {w.data + row * groups * group_nbytes, load_params(params + 4 * row),
            params + 4 * w.rows + row * code_nbytes};
}

// max(f16(x), 2^-14)
static inline float stored_scale(float x) {
    const float rounded = f32_from_f16(f16_from_f32(x));
    return rounded > kF16Tiny ? rounded : kF16Tiny;
}

struct Ends {
    float low, high;
};

// Log scales of the groups of a row, kDead for a group of zeros, and their ends.
static Ends log_scales(const float* x, std::size_t groups, float levels, float* logs) {
    Ends ends{-kDead, kDead};
    for (std::size_t g = 0; g < groups; g++) {
        const float most = float_of(absmax_bits(x + kGroup32 * g, kGroup32));
        logs[g] = most == 0 ? kDead : log2_rounded(stored_scale(most / levels));
        if (most == 0) continue;
        ends.low = logs[g] < ends.low ? logs[g] : ends.low;
        ends.high = logs[g] > ends.high ? logs[g] : ends.high;
    }
    return ends.high < ends.low ? Ends{-14, -14} : ends;
}

static Params fit_params(float low, float top, int span) {
    constexpr int kMostSteps = 64;
    Params params{f16_from_f32(low), 0};
    const float stored = f32_from_f16(params.low), room = top - stored;
    params.step = f16_from_f32((room > 0 ? room : 0.0f) / float(span));
    for (int i = 0; i < kMostSteps; i++) {
        const float step = f32_from_f16(params.step);
        if (step > 0 && stored + float(span) * step >= top) break;
        params.step++;
    }
    return params;
}

// The step of the ladder nearest to a log scale, from 0 to `most`.
static inline std::int32_t nearest_step(float log_scale, Params params, int most) {
    const float ratio = (log_scale - f32_from_f16(params.low)) / f32_from_f16(params.step);
    const float above = ratio > 0 ? ratio : 0.0f, inside = above < float(most) ? above : float(most);
    return std::int32_t((inside + 0x1.8p23f) - 0x1.8p23f);
}

// Groups side by side: column i holds weight i of up to CORTIQ_LANES groups, the others are zero.
static inline void load_columns(const float* x, std::size_t count, Vf* columns) {
    alignas(64) float transposed[kGroup32][CORTIQ_LANES] = {};
    for (std::size_t g = 0; g < count; g++)
        for (std::size_t i = 0; i < kGroup32; i++) transposed[i][g] = x[kGroup32 * g + i];
    for (std::size_t i = 0; i < kGroup32; i++) columns[i] = load(transposed[i]);
}

// The search over rungs, lane by lane. Levels::errors<n>(columns, scales, out) gives the squared errors of n candidate
// scales per group; candidates below `lowest` or beyond the last rung do not count, the first of equal ones stays.
struct RungSearch {
    const float* rungs;
    std::int32_t lowest;
    Vi best;
    Vf least;

    RungSearch(const float* rungs_, std::int32_t lowest_, Vi start)
        : rungs(rungs_), lowest(lowest_), best(start), least(all(-kDead)) {}

    template <class Levels, std::size_t count>
    void consider(const Vf* columns, Vi first) {
        Vi codes[count], inside[count];
        Vf scales[count], found[count];
        for (std::size_t k = 0; k < count; k++) {
            codes[k] = first + std::int32_t(k);
            const Vi above = codes[k] > lowest ? codes[k] : Vi{} + lowest;
            inside[k] = above < kRungs - 1 ? above : Vi{} + (kRungs - 1);
            alignas(64) float at[CORTIQ_LANES];
            for (std::size_t lane = 0; lane < CORTIQ_LANES; lane++) at[lane] = rungs[inside[k][lane]];
            scales[k] = load(at);
        }
        Levels::template errors<count>(columns, scales, found);
        for (std::size_t k = 0; k < count; k++) {
            const Vi better = (codes[k] == inside[k]) & (found[k] < least);
            best = better ? codes[k] : best;
            least = better ? found[k] : least;
        }
    }
};

// Per lane the code nearest to the log scale of a group; that of a group of zeros is the lowest.
template <class Levels>
static inline Vi nearest_codes(const float* logs, std::size_t count, Params params) {
    Vi nearest = Vi{} + Levels::kLowest;
    for (std::size_t g = 0; g < count; g++)
        if (logs[g] != kDead) nearest[g] = Levels::kLowest + nearest_step(logs[g], params, Levels::kSpan);
    return nearest;
}

// Codes of the groups of a row into `codes`, the packed plane, and the scale of each group into `logs`.
template <class Levels>
static void choose_codes(const float* x, std::size_t groups, bool best, const float* rungs, const LadderRow& row) {
    const Params params = load_params(row.params);
    const std::size_t nbytes = (5 * groups + 7) / 8;
    for (std::size_t i = 0; i < nbytes; i++) row.codes[i] = 0;
    for (std::size_t g0 = 0; g0 < groups; g0 += CORTIQ_LANES) {
        const std::size_t count = groups - g0 < CORTIQ_LANES ? groups - g0 : CORTIQ_LANES;
        Vf columns[kGroup32];
        load_columns(x + kGroup32 * g0, count, columns);
        const Vi nearest = nearest_codes<Levels>(row.logs + g0, count, params);
        RungSearch search(rungs, Levels::kLowest, nearest);
        if (best)
            for (int code = 0; code < kRungs; code += 4) search.consider<Levels, 4>(columns, Vi{} + code);
        else
            search.consider<Levels, 4>(columns, nearest - 2);
        for (std::size_t g = 0; g < count; g++) {
            const std::uint32_t code = row.logs[g0 + g] == kDead ? 0 : std::uint32_t(search.best[g]);
            const std::size_t bit = 5 * (g0 + g);
            row.codes[bit / 8] |= std::uint8_t(code << bit % 8);
            if (bit % 8 > 3) row.codes[bit / 8 + 1] |= std::uint8_t(code >> (8 - bit % 8));
            row.logs[g0 + g] = rungs[code];
        }
    }
}

// Code of group g in a packed plane.
static inline std::uint32_t code_at(const std::uint8_t* codes, std::size_t g) {
    const std::size_t bit = 5 * g;
    std::uint32_t both = codes[bit / 8];
    if (bit % 8 > 3) both |= std::uint32_t(codes[bit / 8 + 1]) << 8;
    return both >> bit % 8 & 31;
}

}  // namespace cortiq::CORTIQ_CODEC
