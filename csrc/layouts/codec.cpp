// Drivers of the codecs: rows in, planes out, in pieces that stay in the first-level cache. Refusals are decided here.
#include "layouts/codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "core/error.h"
#include "core/half.h"

namespace cortiq {

namespace {

constexpr std::uint32_t kInfinityBits = 0x7f800000, kBf16OverflowBits = 0x7f7f8000;
constexpr std::size_t kTile = 18;
constexpr std::size_t kCodecColumns = 4096;  // f32 columns in work at a time: half of a first-level cache

const CodecOps& codec_ops(Isa isa) {
    switch (isa) {
#if defined(__x86_64__)
        case Isa::avx512: return codec_avx512::ops();
        case Isa::avx2: return codec_avx2::ops();
#endif
        default: return codec_scalar::ops();
    }
}

[[noreturn]] void refuse_dtype(DType dtype) {
    throw Error("UnsupportedFeature", "dtype", "no codec for dtype id " + std::to_string(int(dtype)));
}

std::size_t element_nbytes(DType dtype) { return dtype == DType::f32 ? 4 : 2; }

// Limit of a layout: the smallest magnitude it cannot hold, as f32 bits.
struct Range {
    std::uint32_t limit;
    const char* what;
};

Range range_of(DType layout) {
    switch (layout) {
        case DType::f16: return {bits_of(kF16Overflow), "f16"};
        case DType::bf16: return {kBf16OverflowBits, "bf16"};
        case DType::q8_row: return {bits_of(127 * kF16Overflow), "the f16 scale of a q8_row"};
        case DType::q4_tiled: return {bits_of(7 * kF16Overflow), "the f16 scale of a q4_tiled group"};
        default: return {kInfinityBits, "f32"};
    }
}

// One block of rows on its way into a layout.
class RowEncoder {
public:
    RowEncoder(Isa isa, DType layout, Encoder encoder, const Weights& weights, std::size_t first_row)
        : ops_(codec_ops(isa)), layout_(layout), encoder_(encoder), weights_(weights), first_row_(first_row) {}

    void run(std::span<std::uint8_t* const> planes) const {
        const std::vector<std::size_t> nbytes = row_nbytes(layout_, weights_.cols);
        for (std::size_t row = 0; row < weights_.rows; row++) {
            if (layout_ == DType::q8_row)
                encode_q8(row, planes[0] + row * nbytes[0], planes[1] + row * nbytes[1]);
            else
                encode_flat(row, planes[0] + row * nbytes[0]);
        }
    }

private:
    // Columns [begin, begin + n) of a row as f32, and the bits of their largest magnitude.
    std::uint32_t load(std::size_t row, std::size_t begin, std::size_t n, float* out) const {
        const std::size_t size = element_nbytes(weights_.dtype);
        const std::uint8_t* from = weights_.data + (row * weights_.cols + begin) * size;
        if (weights_.dtype == DType::f16)
            ops_.widen_f16(from, n, out);
        else if (weights_.dtype == DType::bf16)
            ops_.widen_bf16(from, n, out);
        else
            std::memcpy(out, from, 4 * n);
        return ops_.absmax_bits(out, n);
    }

    // Calls step(begin, n) for the pieces of a row.
    template <class Step>
    void pieces(Step step) const {
        for (std::size_t begin = 0; begin < weights_.cols; begin += kCodecColumns)
            step(begin, std::min(kCodecColumns, weights_.cols - begin));
    }

    void encode_flat(std::size_t row, std::uint8_t* out) const {
        alignas(64) float x[kCodecColumns];
        pieces([&](std::size_t begin, std::size_t n) {
            if (load(row, begin, n, x) >= range_of(layout_).limit) refuse();
            switch (layout_) {
                case DType::f32: std::memcpy(out + 4 * begin, x, 4 * n); break;
                case DType::f16: ops_.narrow_f16(x, n, out + 2 * begin); break;
                case DType::bf16: ops_.narrow_bf16(x, n, out + 2 * begin); break;
                default:
                    (encoder_ == Encoder::best ? ops_.q4_encode_best : ops_.q4_encode_plain)(
                        x, n / kGroup, out + begin / kGroup * kTile);
            }
        });
    }

    void encode_q8(std::size_t row, std::uint8_t* quants, std::uint8_t* scale_out) const {
        alignas(64) float x[kCodecColumns];
        std::uint32_t most = 0;
        pieces([&](std::size_t begin, std::size_t n) { most = std::max(most, load(row, begin, n, x)); });
        if (most >= range_of(layout_).limit) refuse();
        const float scale = std::max(f32_from_f16(f16_from_f32(float_of(most) / 127.0f)), kF16Tiny);
        const std::uint16_t half = f16_exact(scale);
        std::memcpy(scale_out, &half, 2);
        pieces([&](std::size_t begin, std::size_t n) {
            if (weights_.cols > kCodecColumns) load(row, begin, n, x);
            ops_.q8_quantize(x, n, scale, quants + begin);
        });
    }

    // Names the first weight that is not finite, or else the first that is too large: as the definition does.
    [[noreturn]] void refuse() const {
        refuse_first(kInfinityBits, "value", " is not finite");
        const Range range = range_of(layout_);
        refuse_first(range.limit, "range", std::string(" is too large for ") + range.what);
        throw Error("CortiqError", "internal", "the weights changed while they were encoded");
    }

    void refuse_first(std::uint32_t limit, const char* code, const std::string& problem) const {
        alignas(64) float x[kCodecColumns];
        for (std::size_t row = 0; row < weights_.rows; row++)
            pieces([&](std::size_t begin, std::size_t n) {
                if (load(row, begin, n, x) < limit) return;
                std::size_t i = 0;
                while ((bits_of(x[i]) & 0x7fffffff) < limit) i++;
                throw Error("NonFinite", code,
                            "weight [" + std::to_string(first_row_ + row) + ", " + std::to_string(begin + i) + "]" +
                                problem);
            });
    }

    const CodecOps& ops_;
    DType layout_;
    Encoder encoder_;
    Weights weights_;
    std::size_t first_row_;
};

}  // namespace

std::vector<std::size_t> row_nbytes(DType layout, std::size_t cols) {
    switch (layout) {
        case DType::f32: return {4 * cols};
        case DType::f16:
        case DType::bf16: return {2 * cols};
        case DType::q8_row: return {cols, 2};
        case DType::q4_tiled:
            if (cols % kGroup != 0) throw Error("Parse", "in_mod_32", "q4_tiled needs columns in groups of 32");
            return {cols / kGroup * kTile};
        default: refuse_dtype(layout);
    }
}

void encode_rows(Isa isa, DType layout, Encoder encoder, const Weights& weights, std::size_t first_row,
                 std::span<std::uint8_t* const> planes) {
    RowEncoder(isa, layout, encoder, weights, first_row).run(planes);
}

void decode_rows(Isa isa, DType layout, std::span<const std::uint8_t* const> planes, std::size_t rows,
                 std::size_t cols, float* out) {
    const CodecOps& ops = codec_ops(isa);
    const std::vector<std::size_t> nbytes = row_nbytes(layout, cols);
    for (std::size_t row = 0; row < rows; row++, out += cols) {
        const std::uint8_t* from = planes[0] + row * nbytes[0];
        switch (layout) {
            case DType::f32: std::memcpy(out, from, 4 * cols); break;
            case DType::f16: ops.widen_f16(from, cols, out); break;
            case DType::bf16: ops.widen_bf16(from, cols, out); break;
            case DType::q8_row: {
                std::uint16_t half;
                std::memcpy(&half, planes[1] + row * nbytes[1], 2);
                ops.q8_decode(from, cols, f32_from_f16(half), out);
                break;
            }
            default: ops.q4_decode(from, cols / kGroup, out);
        }
    }
}

}  // namespace cortiq
