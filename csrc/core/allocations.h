// How often the core has asked for heap memory: a step of a plan must not.
#pragma once
#include <cstdint>

namespace cortiq {

// Calls of operator new by this extension since it was loaded; 0 for ever in sanitizer builds, which bring their own.
std::uint64_t allocation_count();

}  // namespace cortiq
