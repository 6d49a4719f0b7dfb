#include "bind/bind.h"

namespace cortiq {

void bind_ops(nanobind::module_&) {}

}  // namespace cortiq
