// How fast this machine reads memory: the yardstick every speed is compared with.
#pragma once
#include <cstddef>

namespace cortiq {

// Reads nbytes at data once with `threads` threads, each its own contiguous share, and returns the seconds it took.
// The threads are started beforehand and released together. Throws Error{"UsageError", "threads"} when threads < 1.
double read_seconds(const void* data, std::size_t nbytes, int threads);

}  // namespace cortiq
