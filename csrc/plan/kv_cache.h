// Keys and values of all sequences, in blocks of 32 absolute positions.
//
// Layers with the same window form a group: a block of a group holds its 32 positions for all of its layers, one after
// the other, so memory grows with the blocks in use. Blocks are counted references (a prefix may be shared later) from a
// region that is reserved for the worst case and committed on first use. A windowed group gives blocks back once no
// future query can see them; a few are kept so that a sequence can be cut back a little.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/ops.h"
#include "plan/memory.h"

namespace cortiq {

struct KvLayer {
    std::size_t kv_heads;
    std::size_t head_dim;
    std::size_t window;      // 0: everything before
    std::size_t group = 0;   // set when the cache is built
    std::size_t offset = 0;  // of this layer in a block of its group
};

struct KvLimits {
    std::size_t sequences;
    std::size_t context;     // positions of a sequence
    std::size_t max_tokens;  // of one step
    bool f32;
};

class KvCache {
public:
    KvCache(std::vector<KvLayer> layers, KvLimits limits);

    // Handle of an empty sequence. Throws Error{"Limit", "sequences"} when all are in use.
    int create();
    void release(int sequence);
    // Throws Error{"UsageError", "sequence"} for a handle that is not in use.
    std::size_t length(int sequence) const;
    // Forgets the positions from n on. Throws Error{"UsageError", "length"} beyond the end, and
    // Error{"UsageError", "window"} if a windowed layer no longer has what position n would see.
    void truncate(int sequence, std::size_t n);

    // Makes room for `count` more positions; commit() makes them part of the sequence, rollback() gives them back.
    // None of the three allocates heap memory.
    void extend(int sequence, std::size_t count);
    void commit(int sequence, std::size_t count);
    void rollback(int sequence);

    KvView view(int sequence, std::size_t layer, std::size_t kv_head) const;
    const KvLayer& layer(std::size_t index) const { return layers_[index]; }
    std::size_t committed_nbytes() const;

private:
    struct Group {
        std::size_t window = 0;
        std::size_t block_nbytes = 0;
        std::size_t used = 0;  // blocks ever handed out: memory is committed up to here
        Region memory;
        std::vector<std::uint32_t> references;
        std::vector<std::uint32_t> free;  // last one first
        std::uint32_t take();
        void drop(std::uint32_t block);
    };
    // The blocks a sequence holds of one group: table[first .. end).
    struct Held {
        std::vector<std::uint32_t> table;
        std::size_t first = 0, end = 0;
    };
    struct Sequence {
        bool live = false;
        std::size_t length = 0;
        std::vector<Held> held;  // per group
    };
    void reserve(Group& group) const;
    void keep(Sequence& sequence, std::size_t group, std::size_t first, std::size_t end);
    const Sequence& at(int sequence) const;
    Sequence& at(int sequence);

    std::vector<KvLayer> layers_;
    KvLimits limits_;
    std::vector<Group> groups_;
    std::vector<Sequence> sequences_;
};

}  // namespace cortiq
