// Anonymous memory straight from the system: reserved at once, committed page by page when first touched.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cortiq {

class Region {
public:
    Region() = default;
    // Zeroed, page aligned, huge pages where it pays. Throws Error{"OutOfMemory", what} if the system refuses.
    Region(std::size_t nbytes, const char* what);
    ~Region();
    Region(Region&& other) noexcept;
    Region& operator=(Region&& other) noexcept;

    std::uint8_t* data() const { return data_; }
    std::size_t size() const { return size_; }

private:
    std::uint8_t* data_ = nullptr;
    std::size_t size_ = 0;
};

// Sizes of arrays that will share one region, each on a cache line of its own.
class Carver {
public:
    // Offset of `nbytes` more.
    std::size_t add(std::size_t nbytes);
    std::size_t size() const { return size_; }

private:
    std::size_t size_ = 0;
};

// a * b, a + b, or Error{"Limit", "size"}.
std::size_t checked_mul(std::size_t a, std::size_t b);
std::size_t checked_add(std::size_t a, std::size_t b);

}  // namespace cortiq
