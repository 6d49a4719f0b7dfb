#include "bind/bind.h"

namespace cortiq {

void bind_layouts(nanobind::module_&) {}

}  // namespace cortiq
