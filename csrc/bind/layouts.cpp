// Encoders, decoders and hash64.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bind/bind.h"
#include "core/error.h"
#include "core/hash64.h"
#include "layouts/codec.h"

namespace nb = nanobind;

namespace cortiq {

namespace {

// A contiguous buffer of a Python object, held while in scope. Raises BufferError for anything else.
class Held {
public:
    Held(nb::handle object, int flags) {
        if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
    }
    Held(Held&& other) noexcept : view_(other.view_) { other.view_.obj = nullptr; }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() {
        if (view_.obj != nullptr) PyBuffer_Release(&view_);
    }
    std::uint8_t* data() const { return static_cast<std::uint8_t*>(view_.buf); }
    std::size_t size() const { return static_cast<std::size_t>(view_.len); }
    const Py_buffer& view() const { return view_; }

private:
    Py_buffer view_{};
};

// A C-contiguous matrix of f32, f16 or (as u16) bf16.
class HeldMatrix : public Held {
public:
    HeldMatrix(nb::handle object, bool writable)
        : Held(object, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)) {
        const std::string format = view().format != nullptr ? view().format : "B";
        if (format == "f")
            dtype_ = DType::f32;
        else if (format == "e")
            dtype_ = DType::f16;
        else if (format == "H")
            dtype_ = DType::bf16;
        else
            throw Error("UsageError", "element_type", "weights must be f32, f16 or bf16, not format " + format);
        if (view().ndim != 2) throw Error("UsageError", "ndim", "weights must be a matrix");
    }
    DType dtype() const { return dtype_; }
    std::size_t rows() const { return static_cast<std::size_t>(view().shape[0]); }
    std::size_t cols() const { return static_cast<std::size_t>(view().shape[1]); }

private:
    DType dtype_;
};

Isa isa_or_best(const std::string& name) { return name.empty() ? best_isa() : isa_from_name(name); }

Encoder encoder_from_name(const std::string& name) {
    if (name == "best") return Encoder::best;
    if (name == "plain") return Encoder::plain;
    if (name == "diffuse") return Encoder::diffuse;
    throw Error("UsageError", "encoder", "unknown encoder " + name + "; known are best, plain, diffuse");
}

// The planes of a block of rows, each with its exact size.
std::vector<Held> hold_planes(const nb::sequence& planes, DType layout, const HeldMatrix& matrix) {
    const std::vector<std::size_t> nbytes = plane_nbytes(layout, matrix.rows(), matrix.cols());
    std::vector<Held> held;
    for (nb::handle plane : planes) held.emplace_back(plane, PyBUF_WRITABLE);
    if (held.size() != nbytes.size()) throw Error("UsageError", "planes", "wrong number of planes");
    for (std::size_t i = 0; i < held.size(); i++)
        if (held[i].size() != nbytes[i])
            throw Error("UsageError", "planes",
                        "plane " + std::to_string(i) + " has " + std::to_string(held[i].size()) + " bytes, not " +
                            std::to_string(nbytes[i]));
    return held;
}

void encode(int dtype, const std::string& encoder, nb::handle values, const nb::sequence& planes, nb::handle survey,
            std::size_t first_row, const std::string& isa) {
    const DType layout = static_cast<DType>(dtype);
    const Encoder kind = encoder_from_name(encoder);
    const Isa chosen = isa_or_best(isa);
    const HeldMatrix source(values, false);
    const Held found(survey, PyBUF_SIMPLE);
    const std::vector<Held> held = hold_planes(planes, layout, source);
    std::vector<std::uint8_t*> out;
    for (const Held& plane : held) out.push_back(plane.data());
    const Weights weights{source.data(), source.dtype(), source.rows(), source.cols()};
    const EncodeJob job{chosen, layout, kind, weights, {found.data(), found.size()}, first_row};
    nb::gil_scoped_release unlocked;
    encode_rows(job, out);
}

// Rows of a matrix of `rows` rows, as many as `values` has, from `first_row` on.
void decode(int dtype, nb::handle payload, std::size_t rows, nb::handle values, std::size_t first_row,
            const std::string& isa) {
    const DType layout = static_cast<DType>(dtype);
    const Isa chosen = isa_or_best(isa);
    const HeldMatrix out(values, true);
    if (out.dtype() != DType::f32) throw Error("UsageError", "element_type", "weights are decoded to f32");
    const Held from(payload, PyBUF_SIMPLE);
    if (first_row > rows || rows - first_row < out.rows()) throw Error("UsageError", "rows", "rows out of range");
    const PayloadSize size = payload_size(layout, rows, out.cols());
    if (size.exact ? from.size() != size.nbytes : from.size() < size.nbytes)
        throw Error("UsageError", "payload", "the payload has " + std::to_string(from.size()) + " bytes, not " +
                                                 std::to_string(size.nbytes));
    const MatrixView view{layout, from.data(), from.size(), rows, out.cols(), from.data() + from.size()};
    float* to = reinterpret_cast<float*>(out.data());
    nb::gil_scoped_release unlocked;
    for (std::size_t row = 0; row < out.rows(); row++) decode_row(chosen, view, first_row + row, to + row * view.cols);
}

std::uint64_t hash(nb::handle data, int threads, const std::string& isa) {
    const Isa chosen = isa_or_best(isa);
    const Held held(data, PyBUF_SIMPLE);
    nb::gil_scoped_release unlocked;
    return hash64(held.data(), held.size(), chosen, threads);
}

void update(Hash64& state, nb::handle data, int threads) {
    const Held held(data, PyBUF_SIMPLE);
    nb::gil_scoped_release unlocked;
    state.update(held.data(), held.size(), threads);
}

}  // namespace

void bind_layouts(nb::module_& m) {
    m.def("encode", &encode, nb::arg("dtype"), nb::arg("encoder"), nb::arg("values"), nb::arg("planes"),
          nb::arg("survey"), nb::arg("first_row") = 0, nb::arg("isa") = "");
    m.def("decode", &decode, nb::arg("dtype"), nb::arg("payload"), nb::arg("rows"), nb::arg("values"),
          nb::arg("first_row") = 0, nb::arg("isa") = "");
    m.def("hash64", &hash, nb::arg("data"), nb::arg("threads") = 1, nb::arg("isa") = "");
    nb::class_<Hash64>(m, "Hash64")
        .def("__init__", [](Hash64* self, const std::string& isa) { new (self) Hash64(isa_or_best(isa)); },
             nb::arg("isa") = "")
        .def("update", &update, nb::arg("data"), nb::arg("threads") = 1)
        .def("digest", &Hash64::digest);
}

}  // namespace cortiq
