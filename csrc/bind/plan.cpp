#include "bind/bind.h"

namespace cortiq {

void bind_plan(nanobind::module_&) {}

}  // namespace cortiq
