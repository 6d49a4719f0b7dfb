// A payload of any bytes, of any dtype and shape: refused by its size, or decoded and multiplied on every instruction set
// to the same bits without a touch outside of it. Input: dtype, rows - 1, groups - 1, what to do, payload.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "core/error.h"
#include "fuzz/input.h"
#include "kernels/kernels.h"
#include "layouts/codec.h"

namespace {

using cortiq::Isa;
using cortiq::MatrixView;
using Floats = std::vector<float>;

struct Free {
    void operator()(std::uint8_t* p) const { ::operator delete[](p, std::align_val_t(64)); }
};
using Aligned = std::unique_ptr<std::uint8_t[], Free>;

Aligned aligned(std::size_t n) {
    return Aligned(static_cast<std::uint8_t*>(::operator new[](n == 0 ? 64 : n, std::align_val_t(64))));
}

Floats decode(Isa isa, const MatrixView& w) {
    Floats values(w.rows * w.cols);
    for (std::size_t row = 0; row < w.rows; row++) cortiq::decode_row(isa, w, row, values.data() + row * w.cols);
    return values;
}

// y [1, rows] by the kernels of `isa`, fast or exact.
Floats multiply(Isa isa, const MatrixView& w, const Floats& x, bool fast) {
    const cortiq::Kernels& table = cortiq::kernels(isa);
    const std::size_t need = table.scratch_nbytes(w.cols, 1);
    const Aligned scratch = aligned(need), act = aligned(table.act_nbytes(w.cols));
    Floats y(w.rows);
    const cortiq::Scratch memory{scratch.get(), need};
    if (fast && table.takes_int8(w.dtype)) {
        Floats folded = x;
        if (table.folds(w.dtype)) table.fold(w, x.data(), folded.data());
        table.quantize(folded.data(), w.cols, 0, (w.cols + cortiq::kGroup - 1) / cortiq::kGroup, act.get());
        table.linear_int8(w, act.get(), 1, 0, w.rows, y.data(), w.rows, memory);
    } else {
        table.linear_f32(w, x.data(), w.cols, 1, 0, w.rows, y.data(), w.rows, memory);
    }
    return y;
}

// Equal bits, or both NaN.
bool same(const Floats& a, const Floats& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](float p, float q) { return std::memcmp(&p, &q, 4) == 0 || (p != p && q != q); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const auto dtype = static_cast<cortiq::DType>(input.byte() % 18);
    const std::size_t rows = 1 + input.byte() % 4, groups = 1 + input.byte() % 4;
    const int what = input.byte() % 8;
    const std::size_t cols = groups * (what < 6 ? 32 : 16);
    Floats x(cols);
    for (std::size_t i = 0; i < cols; i++) x[i] = float(int(i * 37 % 64) - 32) / 8;
    const std::vector<std::uint8_t> payload = input.rest();
    try {
        cortiq::check_matrix(dtype, rows, cols, payload.size());
    } catch (const cortiq::Error&) {
        return -1;
    }
    const MatrixView w{dtype, payload.data(), payload.size(), rows, cols, payload.data() + payload.size()};
    const auto computed = [&](Isa isa) { return what % 3 == 0 ? decode(isa, w) : multiply(isa, w, x, what % 3 == 1); };
    static const std::vector<Isa> isas = cortiq::supported_isas();
    const Floats expected = computed(isas.front());
    for (const Isa isa : isas)
        if (isa != isas.front() && !same(computed(isa), expected)) std::abort();
    return 0;
}
