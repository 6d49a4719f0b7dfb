#include "bind/bind.h"

namespace cortiq {

void bind_sampling(nanobind::module_&) {}

}  // namespace cortiq
