#include "bind/bind.h"

namespace cortiq {

void bind_kernels(nanobind::module_&) {}

}  // namespace cortiq
