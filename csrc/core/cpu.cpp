#include "core/cpu.h"

#include <sched.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "core/error.h"

namespace cortiq {

namespace {

#if defined(__x86_64__)
// Asked of the processor: not every compiler knows the name.
bool has_f16c() {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
           __builtin_cpu_supports("bmi2");
}
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi");
}
bool is_amd() { return __builtin_cpu_is("amd"); }
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
bool is_amd() { return false; }
#endif

// Quota of this process's cgroup in processors (v2, else v1), or infinity.
double cgroup_quota() {
    std::ifstream membership("/proc/self/cgroup");
    std::string line, path;
    while (std::getline(membership, line))
        if (line.rfind("0::", 0) == 0) path = line.substr(3);
    double quota = INFINITY;
    // A limit may sit on any ancestor.
    for (std::string at = path;; at.resize(at.rfind('/'))) {
        std::ifstream file("/sys/fs/cgroup" + at + "/cpu.max");
        std::string limit;
        double period = 0;
        if (file >> limit >> period && limit != "max" && period > 0) quota = std::min(quota, std::stod(limit) / period);
        if (at.empty() || at.rfind('/') == std::string::npos) break;
    }
    std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    double us = 0, period = 0;
    if (v1_quota >> us && v1_period >> period && us > 0 && period > 0) quota = std::min(quota, us / period);
    return quota;
}

}  // namespace

const char* isa_name(Isa isa) {
    static constexpr const char* names[] = {"scalar", "avx2", "avx512"};
    return names[static_cast<int>(isa)];
}

bool isa_supported(Isa isa) {
    static const bool avx2 = has_avx2(), avx512 = has_avx512();  // a virtual machine traps the question: 10 us each
    switch (isa) {
        case Isa::avx2: return avx2;
        case Isa::avx512: return avx512;
        default: return true;
    }
}

bool fetching_ahead_helps() {
    static const bool helps = !is_amd();
    return helps;
}

Isa isa_from_name(const std::string& name) {
    for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512}) {
        if (name != isa_name(isa)) continue;
        if (!isa_supported(isa)) throw Error("UsageError", "isa", "this processor has no " + name);
        return isa;
    }
    throw Error("UsageError", "isa", "unknown instruction set " + name + "; known are scalar, avx2, avx512");
}

std::vector<Isa> supported_isas() {
    std::vector<Isa> all;
    for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512})
        if (isa_supported(isa)) all.push_back(isa);
    return all;
}

Isa best_isa() { return supported_isas().back(); }

std::string cpu_model_name() {
    std::ifstream info("/proc/cpuinfo");
    std::string line;
    while (std::getline(info, line))
        if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
    return "unknown";
}

int usable_cpus() {
    cpu_set_t set;
    CPU_ZERO(&set);
    const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return std::max(1, std::min(allowed, static_cast<int>(std::ceil(std::min(cgroup_quota(), 1e6)))));
}

}  // namespace cortiq
