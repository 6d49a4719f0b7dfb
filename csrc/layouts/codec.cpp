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
        case DType::q4tp: return {bits_of(7 * kF16Overflow), "the f16 scale of a q4tp group"};
        case DType::q2tp: return {bits_of(1.5f * kF16Overflow), "the f16 scale of a q2tp group"};
        case DType::vbit: return {0, "the f16 scale of a vbit group"};  // the limit is that of the row's width
        default: return {kInfinityBits, "f32"};
    }
}

// One block of rows on its way into a layout.
class RowEncoder {
public:
    RowEncoder(Isa isa, DType layout, Encoder encoder, const Weights& weights, std::size_t first_row,
               const std::uint8_t* widths = nullptr)
        : ops_(codec_ops(isa)), layout_(layout), encoder_(encoder), weights_(weights), first_row_(first_row),
          widths_(widths) {}

    void run(std::span<std::uint8_t* const> planes) const {
        const std::vector<std::size_t> nbytes = row_nbytes(layout_, weights_.cols);
        for (std::size_t row = 0; row < weights_.rows; row++) {
            if (layout_ == DType::q8_row)
                encode_q8(row, planes[0] + row * nbytes[0], planes[1] + row * nbytes[1]);
            else if (layout_ == DType::q4tp || layout_ == DType::q2tp)
                encode_ladder(row, planes[0] + row * nbytes[0], planes[1] + row * nbytes[1],
                              planes[2] + row * nbytes[2]);
            else
                encode_flat(row, planes[0] + row * nbytes[0]);
        }
    }

    void absmax(float* out) const {
        std::vector<float> x(weights_.cols);
        for (std::size_t row = 0; row < weights_.rows; row++) {
            const std::uint32_t most = load_row(row, x.data());
            if (most >= kInfinityBits) refuse();
            out[row] = float_of(most);
        }
    }

    void vbit_scales(std::uint8_t* scales) const {
        std::vector<float> x(weights_.cols);
        const std::size_t groups = weights_.cols / kGroup;
        for (std::size_t row = 0; row < weights_.rows; row++) {
            if (load_row(row, x.data()) >= limit_of(row)) refuse();
            ops_.vbit_scales(x.data(), groups, widths_[row], scales + 2 * groups * row);
        }
    }

    void vbit_pack(const std::uint8_t* scales, std::uint8_t* packed) const {
        std::vector<float> x(weights_.cols);
        const std::size_t groups = weights_.cols / kGroup;
        for (std::size_t row = 0; row < weights_.rows; row++) {
            if (load_row(row, x.data()) >= limit_of(row)) refuse();
            ops_.vbit_pack(x.data(), groups, widths_[row], scales + 2 * groups * row, packed);
            packed += weights_.cols * widths_[row] / 8;
        }
    }

private:
    // The smallest magnitude a row cannot hold, as f32 bits.
    std::uint32_t limit_of(std::size_t row) const {
        if (layout_ != DType::vbit) return range_of(layout_).limit;
        return bits_of(float((1 << (widths_[row] - 1)) - 1) * kF16Overflow);
    }

    std::uint32_t load_row(std::size_t row, float* out) const { return load(row, 0, weights_.cols, out); }

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

    void encode_ladder(std::size_t row, std::uint8_t* weights, std::uint8_t* params, std::uint8_t* codes) const {
        std::vector<float> x(weights_.cols), logs(weights_.cols / kGroup);
        if (load_row(row, x.data()) >= limit_of(row)) refuse();
        (layout_ == DType::q4tp ? ops_.q4tp_encode : ops_.q2tp_encode)(
            x.data(), logs.size(), encoder_ == Encoder::best, {weights, params, codes, logs.data()});
    }

    // Names the first weight that is not finite, or else the first that is too large: as the definition does.
    [[noreturn]] void refuse() const {
        refuse_first([](std::size_t) { return kInfinityBits; }, "value", " is not finite");
        refuse_first([this](std::size_t row) { return limit_of(row); }, "range",
                     std::string(" is too large for ") + range_of(layout_).what);
        throw Error("CortiqError", "internal", "the weights changed while they were encoded");
    }

    template <class Limit>
    void refuse_first(Limit limit_of_row, const char* code, const std::string& problem) const {
        alignas(64) float x[kCodecColumns];
        for (std::size_t row = 0; row < weights_.rows; row++)
            pieces([&](std::size_t begin, std::size_t n) {
                const std::uint32_t limit = limit_of_row(row);
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
    const std::uint8_t* widths_;
};

void check_groups(std::size_t cols, const char* name) {
    if (cols % kGroup != 0) throw Error("Parse", "in_mod_32", std::string(name) + " needs columns in groups of 32");
}

}  // namespace

std::vector<std::size_t> row_nbytes(DType layout, std::size_t cols) {
    switch (layout) {
        case DType::f32: return {4 * cols};
        case DType::f16:
        case DType::bf16: return {2 * cols};
        case DType::q8_row: return {cols, 2};
        case DType::q4_tiled:
            check_groups(cols, "q4_tiled");
            return {cols / kGroup * kTile};
        case DType::q4tp:
        case DType::q2tp:
            check_groups(cols, layout == DType::q4tp ? "q4tp" : "q2tp");
            return {cols / kGroup * (layout == DType::q4tp ? 16 : 8), 4, (5 * (cols / kGroup) + 7) / 8};
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
            case DType::q4tp:
            case DType::q2tp:
                (layout == DType::q4tp ? ops.q4tp_decode : ops.q2tp_decode)(
                    from, planes[1] + row * nbytes[1], planes[2] + row * nbytes[2], cols / kGroup, out);
                break;
            default: ops.q4_decode(from, cols / kGroup, out);
        }
    }
}

void row_absmax(Isa isa, const Weights& weights, std::size_t first_row, float* out) {
    RowEncoder(isa, DType::f32, Encoder::plain, weights, first_row).absmax(out);
}

void vbit_scales(Isa isa, const Weights& weights, const std::uint8_t* widths, std::size_t first_row,
                 std::uint8_t* scales) {
    RowEncoder(isa, DType::vbit, Encoder::plain, weights, first_row, widths).vbit_scales(scales);
}

void vbit_pack(Isa isa, const Weights& weights, const std::uint8_t* widths, const std::uint8_t* scales,
               std::uint8_t* packed) {
    RowEncoder(isa, DType::vbit, Encoder::plain, weights, 0, widths).vbit_pack(scales, packed);
}

void vbit_decode(Isa isa, const std::uint8_t* widths, const std::uint8_t* scales, const std::uint8_t* packed,
                 std::size_t rows, std::size_t cols, float* out) {
    const CodecOps& ops = codec_ops(isa);
    const std::size_t groups = cols / kGroup;
    for (std::size_t row = 0; row < rows; row++, out += cols, scales += 2 * groups) {
        ops.vbit_decode(packed, scales, groups, widths[row], out);
        packed += cols * widths[row] / 8;
    }
}

}  // namespace cortiq
