// The bytes of a fuzzer, taken from the front.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fuzz {

class Input {
public:
    Input(const std::uint8_t* data, std::size_t size) : data_(data), end_(data + size) {}
    std::uint8_t byte() { return data_ == end_ ? 0 : *data_++; }
    // A copy in memory of exactly its size, so that the sanitizer sees what lies beyond.
    std::vector<std::uint8_t> rest() const { return {data_, end_}; }

private:
    const std::uint8_t *data_, *end_;
};

}  // namespace fuzz
