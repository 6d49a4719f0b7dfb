// What this processor can do, and the instruction set that follows from it.
#pragma once
#include <string>
#include <vector>

namespace cortiq {

enum class Isa { scalar = 0, avx2 = 1, avx512 = 2 };

const char* isa_name(Isa isa);
// Throws Error{"UsageError", "isa"} for an unknown name and for one this processor lacks.
Isa isa_from_name(const std::string& name);
bool isa_supported(Isa isa);
std::vector<Isa> supported_isas();  // ascending
Isa best_isa();
std::string cpu_model_name();
// Whether weights that are read once should be asked for ahead of time (decision 0004).
bool fetching_ahead_helps();
// Processors this process may really use: affinity mask and cgroup quota, at least 1.
int usable_cpus();

}  // namespace cortiq
