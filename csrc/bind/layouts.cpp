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
    Held(nb::handle object, bool writable) {
        if (PyObject_GetBuffer(object.ptr(), &view_, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0)
            throw nb::python_error();
    }
    Held(Held&& other) noexcept : view_(other.view_) { other.view_.obj = nullptr; }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() {
        if (view_.obj != nullptr) PyBuffer_Release(&view_);
    }
    std::uint8_t* data() const { return static_cast<std::uint8_t*>(view_.buf); }
    std::size_t size() const { return static_cast<std::size_t>(view_.len); }

private:
    Py_buffer view_{};
};

Isa isa_or_best(const std::string& name) { return name.empty() ? best_isa() : isa_from_name(name); }

Encoder encoder_from_name(const std::string& name) {
    if (name == "best") return Encoder::best;
    if (name == "plain") return Encoder::plain;
    throw Error("UsageError", "encoder", "unknown encoder " + name + "; known are best, plain");
}

void require_size(std::size_t found, std::size_t rows, std::size_t row_size, const char* what) {
    std::size_t needed = 0;
    if (__builtin_mul_overflow(rows, row_size, &needed) || found != needed)
        throw Error("UsageError", "buffer_size",
                    std::string(what) + " has " + std::to_string(found) + " bytes, not rows times " +
                        std::to_string(row_size));
}

std::vector<Held> hold_planes(const nb::sequence& planes, DType layout, std::size_t rows, std::size_t cols,
                              bool writable) {
    const std::vector<std::size_t> nbytes = row_nbytes(layout, cols);
    std::vector<Held> held;
    for (nb::handle plane : planes) held.emplace_back(plane, writable);
    if (held.size() != nbytes.size()) throw Error("UsageError", "planes", "wrong number of planes");
    for (std::size_t i = 0; i < held.size(); i++) require_size(held[i].size(), rows, nbytes[i], "a plane");
    return held;
}

template <class Pointer>
std::vector<Pointer> pointers(const std::vector<Held>& held) {
    std::vector<Pointer> all;
    for (const Held& one : held) all.push_back(one.data());
    return all;
}

void encode(int dtype, const std::string& encoder, nb::handle source, int source_dtype, std::size_t rows,
            std::size_t cols, const nb::sequence& planes, std::size_t first_row, const std::string& isa) {
    const DType layout = static_cast<DType>(dtype), from = static_cast<DType>(source_dtype);
    if (source_dtype < 0 || source_dtype > 2) throw Error("UsageError", "element_type", "weights must be f32, f16 or bf16");
    const Encoder kind = encoder_from_name(encoder);
    const Isa chosen = isa_or_best(isa);
    const Held weights(source, false);
    require_size(weights.size(), rows, (from == DType::f32 ? 4 : 2) * cols, "the source");
    const std::vector<Held> held = hold_planes(planes, layout, rows, cols, true);
    const std::vector<std::uint8_t*> out = pointers<std::uint8_t*>(held);
    nb::gil_scoped_release unlocked;
    encode_rows(chosen, layout, kind, Weights{weights.data(), from, rows, cols}, first_row, out);
}

void decode(int dtype, const nb::sequence& planes, std::size_t rows, std::size_t cols, nb::handle out,
            const std::string& isa) {
    const DType layout = static_cast<DType>(dtype);
    const Isa chosen = isa_or_best(isa);
    const std::vector<Held> held = hold_planes(planes, layout, rows, cols, false);
    const std::vector<const std::uint8_t*> from = pointers<const std::uint8_t*>(held);
    const Held values(out, true);
    require_size(values.size(), rows, 4 * cols, "the result");
    nb::gil_scoped_release unlocked;
    decode_rows(chosen, layout, from, rows, cols, reinterpret_cast<float*>(values.data()));
}

std::uint64_t hash(nb::handle data, int threads, const std::string& isa) {
    const Isa chosen = isa_or_best(isa);
    const Held held(data, false);
    nb::gil_scoped_release unlocked;
    return hash64(held.data(), held.size(), chosen, threads);
}

void update(Hash64& state, nb::handle data, int threads) {
    const Held held(data, false);
    nb::gil_scoped_release unlocked;
    state.update(held.data(), held.size(), threads);
}

}  // namespace

void bind_layouts(nb::module_& m) {
    m.def("encode", &encode, nb::arg("dtype"), nb::arg("encoder"), nb::arg("source"), nb::arg("source_dtype"),
          nb::arg("rows"), nb::arg("cols"), nb::arg("planes"), nb::arg("first_row") = 0, nb::arg("isa") = "");
    m.def("decode", &decode, nb::arg("dtype"), nb::arg("planes"), nb::arg("rows"), nb::arg("cols"), nb::arg("out"),
          nb::arg("isa") = "");
    m.def("hash64", &hash, nb::arg("data"), nb::arg("threads") = 1, nb::arg("isa") = "");
    nb::class_<Hash64>(m, "Hash64")
        .def("__init__", [](Hash64* self, const std::string& isa) { new (self) Hash64(isa_or_best(isa)); },
             nb::arg("isa") = "")
        .def("update", &update, nb::arg("data"), nb::arg("threads") = 1)
        .def("digest", &Hash64::digest);
}

}  // namespace cortiq
