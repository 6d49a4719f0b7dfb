// Processor facts, and the guard of mapped files.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/bind.h"
#include "core/cpu.h"
#include "core/map_guard.h"

namespace nb = nanobind;

namespace cortiq {

void bind_core(nb::module_& m) {
    m.def("cpu_model_name", &cpu_model_name);
    m.def("usable_cpus", &usable_cpus);
    m.def("best_isa", [] { return std::string(isa_name(best_isa())); });
    m.def("supported_isas", [] {
        std::vector<std::string> names;
        for (Isa isa : supported_isas()) names.emplace_back(isa_name(isa));
        return names;
    });
    nb::class_<MapGuard>(m, "MapGuard")
        .def("__init__",
             [](MapGuard* self, std::uintptr_t address, std::size_t nbytes) {
                 new (self) MapGuard(reinterpret_cast<const void*>(address), nbytes);
             })
        .def_prop_ro("lost", &MapGuard::lost);
}

}  // namespace cortiq
