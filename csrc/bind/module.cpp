// The extension module cortiq._native: one bind_* function per area, and the translation of errors.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bind/bind.h"
#include "core/error.h"

namespace nb = nanobind;

namespace {

void translate(const std::exception_ptr& pointer, void*) {
    try {
        std::rethrow_exception(pointer);
    } catch (const cortiq::Error& error) {
        nb::object type = nb::module_::import_("cortiq.errors").attr(error.kind.c_str());
        nb::object value = type(error.what(), nb::arg("code") = error.code.c_str());
        PyErr_SetObject(type.ptr(), value.ptr());
    }
}

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "Native core of cortiq. Use the Python modules above it.";
    nb::register_exception_translator(translate);
    cortiq::bind_core(m);
    cortiq::bind_probe(m);
    cortiq::bind_layouts(m);
    cortiq::bind_kernels(m);
    cortiq::bind_ops(m);
    cortiq::bind_plan(m);
    cortiq::bind_sampling(m);
}
