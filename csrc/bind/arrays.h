// NumPy arrays as the bindings take them.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <string>

#include "core/error.h"

namespace cortiq {

template <class T>
using Vector = nanobind::ndarray<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
template <class T>
using Matrix = nanobind::ndarray<const T, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;
using VectorOut = nanobind::ndarray<float, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using MatrixOut = nanobind::ndarray<float, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;

inline void expect_size(std::size_t found, std::size_t expected, const char* what) {
    if (found == expected) return;
    throw Error("ShapeMismatch", "size", std::string(what) + " has " + std::to_string(found) + " entries, must have " +
                                             std::to_string(expected));
}

}  // namespace cortiq
