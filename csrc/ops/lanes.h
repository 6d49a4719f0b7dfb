// What the operators share over eight lanes: exp, tanh, fixed-order sums, ragged tails. Included by isa_*.cpp only.
#pragma once
#include <cmath>
#include <cstddef>

namespace cortiq::CORTIQ_OPS_NS {

// x[i] = e^(x[i] - n[i] ln 2), for arguments within ln2 / 2: a polynomial of degree 6, relative error 3e-9. Several
// vectors go through side by side, because one alone waits for its own results most of the time.
template <class V, int N>
CORTIQ_INLINE void exp_rest(V (&x)[N], const V (&n)[N]) {
    constexpr float kTerms[] = {0.00836885068565607f, 0.041668400168418884f, 0.1666651964187622f, 0.4999999403953552f, 1.0f, 1.0f};
    V p[N];
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) {
        x[i] = fma(n[i], splat<V>(-0.693145752f), x[i]);
        x[i] = fma(n[i], splat<V>(-1.42860677e-06f), x[i]);
        p[i] = splat<V>(0.0013814320554956794f);
    }
#pragma GCC unroll 8
    for (float term : kTerms)
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) p[i] = fma(p[i], x[i], splat<V>(term));
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) x[i] = p[i];
}

// e^x, at most 1 ulp off: n = round(x / ln 2), e^(x - n ln 2), then two exact-or-final multiplications by powers of two,
// so that subnormals and infinity come out right.
template <class V>
CORTIQ_INLINE V exp(V x) {
    const V magic = splat<V>(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    x = min(splat<V>(89.0f), max(splat<V>(-110.0f), x));
    const V n[1] = {sub(fma(x, splat<V>(1.44269502f), magic), magic)};
    V p[1] = {x};
    exp_rest(p, n);
    const V half = fma(n[0], splat<V>(0.5f), magic);
    const V rest = add(sub(n[0], sub(half, magic)), magic);
    return mul(mul(p[0], exp2_of_biased(half)), exp2_of_biased(rest));
}

// x[i] = e^x[i] for x[i] <= 0, as softmax needs it: 2^-126 below that.
template <class V, int N>
CORTIQ_INLINE void exp_weights(V (&x)[N]) {
    const V magic = splat<V>(12582912.0f);
    V n[N], power[N];
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) {
        x[i] = max(splat<V>(-87.3365479f), x[i]);
        const V biased = fma(x[i], splat<V>(1.44269502f), magic);
        n[i] = sub(biased, magic);
        power[i] = exp2_of_biased(biased);
    }
    exp_rest(x, n);
#pragma GCC unroll 4
    for (int i = 0; i < N; i++) x[i] = mul(x[i], power[i]);
}

// tanh x: x + x^3 q(x^2) below 0.625 (relative error 4e-9), 1 - 2 / (e^2|x| + 1) above.
template <class V>
CORTIQ_INLINE V tanh(V x) {
    const V size = abs(x), square = mul(x, x);
    V q = splat<V>(-0.005717045161873102f);
    q = fma(q, square, splat<V>(0.02065058797597885f));
    q = fma(q, square, splat<V>(-0.05374349653720856f));
    q = fma(q, square, splat<V>(0.13331490755081177f));
    q = fma(q, square, splat<V>(-0.3333328366279602f));
    const V small = fma(q, mul(square, size), size);
    const V large = sub(splat<V>(1.0f), div(splat<V>(2.0f), add(exp(add(size, size)), splat<V>(1.0f))));
    return with_sign_of(select_less(size, splat<V>(0.625f), small, large), x);
}

CORTIQ_INLINE double sum_squares(D8 a) {
    double v[8];
    store_squares(v, a);
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

// The first n <= 8 floats at p, zeros behind them.
CORTIQ_INLINE F8 load_part(const float* p, std::size_t n) {
    if (n == 8) return load(p);
    float v[8] = {};
    for (std::size_t i = 0; i < n; i++) v[i] = p[i];
    return load(v);
}
CORTIQ_INLINE void store_part(float* p, F8 a, std::size_t n) {
    float v[8];
    store(v, a);
    for (std::size_t i = 0; i < n; i++) p[i] = v[i];
}

// y[i] = f(a[i], b[i]) for n elements: as many at a time as fit into a vector, then eight, then a padded rest.
template <class F>
CORTIQ_INLINE void map2(const float* a, const float* b, float* y, std::size_t n, F f) {
    std::size_t i = 0;
    for (; i + kWide <= n; i += kWide) store(y + i, f(load<FW>(a + i), load<FW>(b + i)));
    for (; i + 8 <= n; i += 8) store(y + i, f(load(a + i), load(b + i)));
    if (i < n) store_part(y + i, f(load_part(a + i, n - i), load_part(b + i, n - i)), n - i);
}
template <class F>
CORTIQ_INLINE void map1(const float* a, float* y, std::size_t n, F f) {
    map2(a, a, y, n, [f](auto x, auto) CORTIQ_LAMBDA { return f(x); });
}

}  // namespace cortiq::CORTIQ_OPS_NS
