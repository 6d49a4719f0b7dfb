#include "plan/memory.h"

#include <sys/mman.h>

#include <string>
#include <utility>

#include "core/error.h"

namespace cortiq {

namespace {
constexpr std::size_t kHugePage = std::size_t{2} << 20;
}

Region::Region(std::size_t nbytes, const char* what) : size_(nbytes) {
    if (nbytes == 0) return;
    void* p = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        size_ = 0;
        throw Error("OutOfMemory", what, "cannot reserve " + std::to_string(nbytes) + " bytes for " + what);
    }
    data_ = static_cast<std::uint8_t*>(p);
    if (nbytes >= kHugePage) madvise(p, nbytes, MADV_HUGEPAGE);  // advice: kernels without huge pages refuse it
}

Region::~Region() {
    if (data_) munmap(data_, size_);
}

Region::Region(Region&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Region& Region::operator=(Region&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

std::size_t Carver::add(std::size_t nbytes) {
    const std::size_t at = size_;
    size_ = checked_add(size_, checked_add(nbytes, 63) / 64 * 64);
    return at;
}

std::size_t checked_mul(std::size_t a, std::size_t b) {
    std::size_t product;
    if (__builtin_mul_overflow(a, b, &product)) throw Error("Limit", "size", "a size does not fit into 64 bits");
    return product;
}

std::size_t checked_add(std::size_t a, std::size_t b) {
    std::size_t sum;
    if (__builtin_add_overflow(a, b, &sum)) throw Error("Limit", "size", "a size does not fit into 64 bits");
    return sum;
}

}  // namespace cortiq
