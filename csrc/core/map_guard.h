// A mapped file that shrinks makes every read of its lost pages a fault (SIGBUS), which would end the process. In a guarded
// range the lost page reads as zeros instead, and the guard remembers it: whoever used the bytes gives up the result.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cortiq {

class MapGuard {
public:
    // Guards [begin, begin + nbytes) as long as the object lives; end it before the memory is unmapped. Throws
    // Error{"Limit", "mappings"} beyond 4,096 guards.
    MapGuard(const void* begin, std::size_t nbytes);
    ~MapGuard();
    MapGuard(const MapGuard&) = delete;
    MapGuard& operator=(const MapGuard&) = delete;

    bool lost() const;  // a page of the range has been read after the file lost it

private:
    std::size_t slot_;
};

// Pages lost so far in all guarded ranges, and whether the guarded range that holds `address` lost one.
std::uint64_t lost_pages();
bool lost_at(const void* address);

}  // namespace cortiq
