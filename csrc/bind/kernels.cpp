// The linear operators, one call at a time: for tests, references and benchmarks. The executor calls the tables itself.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "bind/bind.h"
#include "core/error.h"
#include "kernels/kernels.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cortiq {

namespace {

using Input = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Output2 = nb::ndarray<nb::numpy, float, nb::ndim<2>>;
using Output1 = nb::ndarray<nb::numpy, float, nb::ndim<1>>;

// A Python buffer held open.
class Bytes {
public:
    explicit Bytes(nb::handle object) {
        if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
    }
    ~Bytes() { PyBuffer_Release(&view_); }
    Bytes(const Bytes&) = delete;
    Bytes& operator=(const Bytes&) = delete;
    const std::uint8_t* data() const { return static_cast<const std::uint8_t*>(view_.buf); }
    std::size_t size() const { return static_cast<std::size_t>(view_.len); }

private:
    Py_buffer view_{};
};

struct Free {
    void operator()(std::uint8_t* p) const { ::operator delete[](p, std::align_val_t(64)); }
};
using Aligned = std::unique_ptr<std::uint8_t[], Free>;
Aligned aligned(std::size_t n) {
    return Aligned(static_cast<std::uint8_t*>(::operator new[](n == 0 ? 64 : n, std::align_val_t(64))));
}

MatrixView view(const Bytes& bytes, int dtype, std::size_t rows, std::size_t cols) {
    if (dtype < 0 || dtype > 255) throw Error("UnsupportedFeature", "dtype", "no such dtype");
    const DType type = static_cast<DType>(dtype);
    check_matrix(type, rows, cols, bytes.size());
    return {type, bytes.data(), bytes.size(), rows, cols, bytes.data() + bytes.size()};
}

float* new_floats(std::size_t n, nb::capsule& owner) {
    float* data = new float[n]();
    owner = nb::capsule(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
    return data;
}

bool fast(const std::string& mode) {
    if (mode != "fast" && mode != "exact") throw Error("UsageError", "mode", "mode must be fast or exact");
    return mode == "fast";
}

struct Range {
    std::size_t r0, r1;
};
Range range(long r0, long r1, std::size_t rows) {
    const long end = r1 < 0 ? static_cast<long>(rows) : r1;
    if (r0 < 0 || r0 > end || end > static_cast<long>(rows)) throw Error("Bounds", "rows", "rows out of range");
    return {static_cast<std::size_t>(r0), static_cast<std::size_t>(end)};
}

void run(const Kernels& kernels, bool int8, const MatrixView& w, const Input& x, Range rows, float* y) {
    const std::size_t m = x.shape(0), stride = kernels.act_nbytes(w.cols), need = kernels.scratch_nbytes(w.cols, m);
    const Aligned scratch = aligned(need);
    if (int8 && kernels.takes_int8(w.dtype)) {
        const Aligned act = aligned(m * stride);
        const std::size_t groups = (w.cols + kGroup - 1) / kGroup;
        std::vector<float> folded(kernels.folds(w.dtype) ? w.cols : 0);
        for (std::size_t i = 0; i < m; i++) {
            const float* row = x.data() + i * w.cols;
            if (!folded.empty()) kernels.fold(w, row, folded.data()), row = folded.data();
            kernels.quantize(row, w.cols, 0, groups, act.get() + i * stride);
        }
        kernels.linear_int8(w, act.get(), m, rows.r0, rows.r1, y, w.rows, {scratch.get(), need});
    } else {
        kernels.linear_f32(w, x.data(), w.cols, m, rows.r0, rows.r1, y, w.rows, {scratch.get(), need});
    }
}

Output2 linear(const std::string& isa, const std::string& mode, int dtype, nb::object weight, std::size_t rows,
               std::size_t cols, const Input& x, long r0, long r1) {
    const Kernels& table = kernels(isa_from_name(isa));
    const bool int8 = fast(mode);
    const Bytes bytes(weight);
    const MatrixView w = view(bytes, dtype, rows, cols);
    if (x.shape(1) != cols) throw Error("ShapeMismatch", "columns", "x has another number of columns than the matrix");
    const Range part = range(r0, r1, rows);
    nb::capsule owner;
    float* y = new_floats(x.shape(0) * rows, owner);
    {
        nb::gil_scoped_release release;
        run(table, int8, w, x, part, y);
    }
    return Output2(y, {x.shape(0), rows}, owner);
}

Output1 gather(const std::string& isa, int dtype, nb::object weight, std::size_t rows, std::size_t cols,
               std::size_t row) {
    const Kernels& table = kernels(isa_from_name(isa));
    const Bytes bytes(weight);
    const MatrixView w = view(bytes, dtype, rows, cols);
    if (row >= rows) throw Error("Bounds", "rows", "row out of range");
    nb::capsule owner;
    float* out = new_floats(cols, owner);
    table.gather(w, row, out);
    return Output1(out, {cols}, owner);
}

Output2 quantize_dequantize(const std::string& isa, const Input& x) {
    const Kernels& table = kernels(isa_from_name(isa));
    const std::size_t m = x.shape(0), k = x.shape(1);
    const Aligned act = aligned(table.act_nbytes(k));
    nb::capsule owner;
    float* out = new_floats(m * k, owner);
    for (std::size_t i = 0; i < m; i++) {
        table.quantize(x.data() + i * k, k, 0, (k + kGroup - 1) / kGroup, act.get());
        table.dequantize(act.get(), k, out + i * k);
    }
    return Output2(out, {m, k}, owner);
}

// Whether a dtype has kernels of its own on an instruction set.
bool has_kernels(const std::string& isa, int dtype) {
    return dtype >= 0 && dtype <= 255 && kernels(isa_from_name(isa)).is_fast(static_cast<DType>(dtype));
}

}  // namespace

void bind_kernels(nb::module_& m) {
    m.def("linear", &linear, "isa"_a, "mode"_a, "dtype_id"_a, "weight"_a, "rows"_a, "cols"_a, "x"_a, "r0"_a = 0,
          "r1"_a = -1);
    m.def("has_kernels", &has_kernels, "isa"_a, "dtype_id"_a);
    m.def("gather", &gather, "isa"_a, "dtype_id"_a, "weight"_a, "rows"_a, "cols"_a, "row"_a);
    m.def("quantize_dequantize", &quantize_dequantize, "isa"_a, "x"_a);
}

}  // namespace cortiq
