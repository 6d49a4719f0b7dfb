// Measurements of the machine.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "bind/bind.h"
#include "core/probe.h"

namespace nb = nanobind;

namespace cortiq {

void bind_probe(nb::module_& m) {
    m.def(
        "read_seconds",
        [](nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> data, int threads) {
            nb::gil_scoped_release release;
            return read_seconds(data.data(), data.nbytes(), threads);
        },
        nb::arg("data").noconvert(), nb::arg("threads"));
}

}  // namespace cortiq
