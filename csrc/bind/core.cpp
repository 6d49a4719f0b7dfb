// Processor facts.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/bind.h"
#include "core/cpu.h"

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
}

}  // namespace cortiq
