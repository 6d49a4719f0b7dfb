#include "plan/kv_cache.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "core/error.h"

namespace cortiq {

namespace {

// Positions a windowed group keeps beyond its window, for sequences that are cut back.
constexpr std::size_t kSlack = 64;

std::size_t blocks_for(std::size_t positions) { return (positions + kKvBlock - 1) / kKvBlock; }

// First block that a query at `position` can see.
std::size_t first_block(std::size_t position, std::size_t window) {
    return window && position + 1 > window ? (position + 1 - window) / kKvBlock : 0;
}

}  // namespace

KvCache::KvCache(std::vector<KvLayer> layers, KvLimits limits) : layers_(std::move(layers)), limits_(limits) {
    for (KvLayer& layer : layers_) {
        auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.window == layer.window; });
        if (group == groups_.end()) {
            groups_.emplace_back().window = layer.window;
            group = groups_.end() - 1;
        }
        layer.group = static_cast<std::size_t>(group - groups_.begin());
        layer.offset = group->block_nbytes;
        const std::size_t nbytes = checked_mul(layer.kv_heads, kv_head_nbytes(layer.head_dim, limits_.f32));
        group->block_nbytes = checked_add(group->block_nbytes, (nbytes + 63) / 64 * 64);
    }
    for (Group& group : groups_) reserve(group);
    sequences_.resize(limits_.sequences);
    for (Sequence& sequence : sequences_) {
        sequence.held.resize(groups_.size());
        for (Held& held : sequence.held) held.table.resize(blocks_for(limits_.context));
    }
}

void KvCache::reserve(Group& group) const {
    std::size_t blocks = blocks_for(limits_.context);
    if (group.window) {
        // Beyond the window: the slack, a block cut at either end, and what one step appends before it gives back.
        const std::size_t ring = blocks_for(group.window) + blocks_for(kSlack) + 2 + blocks_for(limits_.max_tokens);
        blocks = std::min(blocks, ring);
    }
    blocks = checked_mul(blocks, limits_.sequences);
    if (blocks > std::numeric_limits<std::uint32_t>::max()) throw Error("Limit", "context", "too many cache blocks");
    group.memory = Region(checked_mul(blocks, group.block_nbytes), "kv_cache");
    group.references.resize(blocks);
    group.free.resize(blocks);
    for (std::size_t i = 0; i < blocks; i++) group.free[i] = static_cast<std::uint32_t>(blocks - 1 - i);
}

std::uint32_t KvCache::Group::take() {
    // The region holds the worst case, so there always is one.
    if (free.empty()) throw Error("CortiqError", "kv_cache", "no free cache block");
    const std::uint32_t block = free.back();
    free.pop_back();
    references[block] = 1;
    used = std::max(used, static_cast<std::size_t>(block) + 1);
    return block;
}

void KvCache::Group::drop(std::uint32_t block) {
    if (--references[block] == 0) free.push_back(block);  // within the capacity it started with
}

const KvCache::Sequence& KvCache::at(int sequence) const {
    const auto index = static_cast<std::size_t>(sequence);
    if (sequence < 0 || index >= sequences_.size() || !sequences_[index].live)
        throw Error("UsageError", "sequence", "no sequence " + std::to_string(sequence));
    return sequences_[index];
}
KvCache::Sequence& KvCache::at(int sequence) { return const_cast<Sequence&>(std::as_const(*this).at(sequence)); }

// Shrinks what a sequence holds of a group to blocks [first, end).
void KvCache::keep(Sequence& sequence, std::size_t group, std::size_t first, std::size_t end) {
    Held& held = sequence.held[group];
    for (; held.end > std::max(end, held.first); held.end--) groups_[group].drop(held.table[held.end - 1]);
    for (; held.first < std::min(first, held.end); held.first++) groups_[group].drop(held.table[held.first]);
}

int KvCache::create() {
    const auto found = std::find_if(sequences_.begin(), sequences_.end(), [](const Sequence& s) { return !s.live; });
    if (found == sequences_.end())
        throw Error("Limit", "sequences", "all " + std::to_string(sequences_.size()) + " sequences are in use");
    found->live = true;
    found->length = 0;
    for (Held& held : found->held) held.first = held.end = 0;
    return static_cast<int>(found - sequences_.begin());
}

void KvCache::release(int sequence) {
    Sequence& s = at(sequence);
    for (std::size_t g = 0; g < groups_.size(); g++) keep(s, g, s.held[g].end, s.held[g].end);
    s.live = false;
}

std::size_t KvCache::length(int sequence) const { return at(sequence).length; }

void KvCache::truncate(int sequence, std::size_t n) {
    Sequence& s = at(sequence);
    if (n > s.length)
        throw Error("UsageError", "length",
                    "cannot cut a sequence of " + std::to_string(s.length) + " positions to " + std::to_string(n));
    for (std::size_t g = 0; g < groups_.size(); g++)
        if (n > 0 && s.held[g].first > first_block(n, groups_[g].window))
            throw Error("UsageError", "window", "a windowed layer has forgotten what position " + std::to_string(n) + " sees");
    for (std::size_t g = 0; g < groups_.size(); g++) {
        keep(s, g, s.held[g].first, blocks_for(n));
        if (n == 0) s.held[g].first = s.held[g].end = 0;
    }
    s.length = n;
}

void KvCache::extend(int sequence, std::size_t count) {
    Sequence& s = at(sequence);
    const std::size_t end = blocks_for(s.length + count);
    for (std::size_t g = 0; g < groups_.size(); g++)
        for (Held& held = s.held[g]; held.end < end; held.end++) held.table[held.end] = groups_[g].take();
}

void KvCache::commit(int sequence, std::size_t count) {
    Sequence& s = at(sequence);
    s.length += count;
    for (std::size_t g = 0; g < groups_.size(); g++) {
        const std::size_t window = groups_[g].window;
        if (window) keep(s, g, first_block(s.length, window + kSlack), s.held[g].end);
    }
}

void KvCache::rollback(int sequence) {
    Sequence& s = at(sequence);
    for (std::size_t g = 0; g < groups_.size(); g++) keep(s, g, s.held[g].first, blocks_for(s.length));
}

KvView KvCache::view(int sequence, std::size_t layer, std::size_t kv_head) const {
    const KvLayer& l = layers_[layer];
    const Group& group = groups_[l.group];
    return KvView{group.memory.data(),
                  sequences_[static_cast<std::size_t>(sequence)].held[l.group].table.data(),
                  group.block_nbytes,
                  l.offset + kv_head * kv_head_nbytes(l.head_dim, limits_.f32),
                  l.head_dim,
                  limits_.f32};
}

std::size_t KvCache::committed_nbytes() const {
    std::size_t total = 0;
    for (const Group& group : groups_) total += group.used * group.block_nbytes;
    return total;
}

}  // namespace cortiq
