// Drivers of the encoders: rows in, planes out, in pieces that stay in the first-level cache where the layout allows it.
// Refusals are decided here.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "core/error.h"
#include "core/half.h"
#include "layouts/codec.h"

namespace cortiq {

namespace {

constexpr std::uint32_t kInfinityBits = 0x7f800000, kBf16OverflowBits = 0x7f7f8000;
constexpr std::size_t kTile = 18, kNibbles = 16, kThresholdNbytes = 8;
constexpr std::size_t kCodecColumns = 4096;  // f32 columns in work at a time: half of a first-level cache

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
        case DType::q4_block: return {bits_of(7 * kF16Overflow), "the f16 scale of a q4_block group"};
        case DType::q8_2f: return {bits_of(kF16Overflow), "the f16 column field of q8_2f"};
        case DType::q1: return {bits_of(kF16Overflow), "the f16 scale of a q1 group"};
        case DType::q1s: return {bits_of(kF16Overflow), "an f16 outlier of q1s"};
        case DType::q1t: return {bits_of(kF16Overflow), "the f16 scale of a q1t group"};
        case DType::q4tp: return {bits_of(7 * kF16Overflow), "the f16 scale of a q4tp group"};
        case DType::q2tp: return {bits_of(1.5f * kF16Overflow), "the f16 scale of a q2tp group"};
        case DType::vbit: return {0, "the f16 scale of a vbit group"};  // limits are those of the widths
        case DType::vbit_ro: return {0, "the f16 scale of a vbit_ro group"};
        default: return {kInfinityBits, "f32"};
    }
}

bool is_vbit(DType layout) { return layout == DType::vbit || layout == DType::vbit_ro; }

void check_widths(std::span<const std::uint8_t> widths, std::size_t first_row) {
    for (std::size_t row = 0; row < widths.size(); row++)
        if (widths[row] < 3 || widths[row] > 8 || widths[row] == 7)
            throw Error("Parse", "vbit_bits", "bit width of row " + std::to_string(first_row + row));
}

void check_job(const EncodeJob& job) {
    std::size_t survey = 0;
    if (job.layout == DType::q8_2f) survey = 2 * job.weights.cols;
    if (job.layout == DType::q1s) survey = kThresholdNbytes;
    if (is_vbit(job.layout)) survey = std::max(job.survey.size(), job.first_row + job.weights.rows);
    if (job.survey.size() != survey)
        throw Error("UsageError", "survey", "the survey has " + std::to_string(job.survey.size()) + " bytes, not " +
                                                std::to_string(survey));
    if (is_vbit(job.layout)) check_widths(job.survey.subspan(job.first_row, job.weights.rows), job.first_row);
    if (job.encoder == Encoder::diffuse && job.layout != DType::q1)
        throw Error("UsageError", "encoder", "error diffusion is an encoder of q1");
}

// One block of rows on its way into a layout.
class RowEncoder {
public:
    explicit RowEncoder(const EncodeJob& job) : ops_(codec_ops(job.isa)), job_(job), weights_(job.weights) {}

    void run(std::span<std::uint8_t* const> planes) {
        switch (job_.layout) {
            case DType::q8_row: return rows([&](std::size_t row) { encode_q8(row, planes[0], planes[1]); });
            case DType::q8_2f: return whole_rows([&](std::size_t row) { encode_q8_2f(row, planes[0], planes[1]); });
            case DType::q4_block: return encode_q4_block(planes[0], planes[1]);
            case DType::q1:
            case DType::q1s: return whole_rows([&](std::size_t row) { encode_q1(row, planes[0]); });
            case DType::q1t: return whole_rows([&](std::size_t row) { encode_q1t(row, planes[0]); });
            case DType::q4tp:
            case DType::q2tp: return whole_rows([&](std::size_t row) { encode_ladder(row, planes); });
            case DType::vbit:
            case DType::vbit_ro: return whole_rows([&](std::size_t row) { encode_vbit(row, planes[0], planes[1]); });
            default: return rows([&](std::size_t row) { encode_flat(row, planes[0]); });
        }
    }

    void absmax(float* out) {
        whole_rows([&](std::size_t row) { out[row] = float_of(ops_.absmax_bits(row_.data(), weights_.cols)); });
    }

    void pack_vbit(std::uint8_t* packed) {
        const std::size_t groups = weights_.cols / kGroup;
        std::vector<std::uint8_t> scales(2 * groups);
        whole_rows([&](std::size_t row) {
            ops_.vbit_scales(row_.data(), groups, width_of(row), scales.data());
            ops_.vbit_pack(row_.data(), groups, width_of(row), scales.data(), packed);
            packed += 4 * groups * std::size_t(width_of(row));
        });
    }

private:
    template <class Step>
    void rows(Step step) const {
        for (std::size_t row = 0; row < weights_.rows; row++) step(row);
    }

    // Calls step(row) with the row in row_.
    template <class Step>
    void whole_rows(Step step) {
        row_.resize(weights_.cols);
        rows([&](std::size_t row) {
            if (load(row, 0, weights_.cols, row_.data()) >= limit_of(row)) refuse();
            step(row);
        });
    }

    int width_of(std::size_t row) const { return job_.survey[job_.first_row + row]; }

    // The smallest magnitude a row cannot hold, as f32 bits.
    std::uint32_t limit_of(std::size_t row) const {
        if (!is_vbit(job_.layout)) return range_of(job_.layout).limit;
        return bits_of(float((1 << (width_of(row) - 1)) - 1) * kF16Overflow);
    }

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

    void q4_encode(const float* x, std::size_t groups, std::uint8_t* tiles) const {
        (job_.encoder == Encoder::best ? ops_.q4_encode_best : ops_.q4_encode_plain)(x, groups, tiles);
    }

    void encode_flat(std::size_t row, std::uint8_t* plane) const {
        alignas(64) float x[kCodecColumns];
        const std::size_t at = row * weights_.cols;
        pieces([&](std::size_t begin, std::size_t n) {
            if (load(row, begin, n, x) >= range_of(job_.layout).limit) refuse();
            switch (job_.layout) {
                case DType::f32: std::memcpy(plane + 4 * (at + begin), x, 4 * n); break;
                case DType::f16: ops_.narrow_f16(x, n, plane + 2 * (at + begin)); break;
                case DType::bf16: ops_.narrow_bf16(x, n, plane + 2 * (at + begin)); break;
                default: q4_encode(x, n / kGroup, plane + (at + begin) / kGroup * kTile);
            }
        });
    }

    // Pieces of the flattened block, the last one padded with zeros to whole groups.
    void encode_q4_block(std::uint8_t* nibbles, std::uint8_t* scales) const {
        alignas(64) float x[kCodecColumns];
        std::uint8_t tiles[kCodecColumns / kGroup * kTile];
        const std::size_t total = weights_.rows * weights_.cols;
        for (std::size_t begin = 0; begin < total; begin += kCodecColumns) {
            const std::size_t n = std::min(kCodecColumns, total - begin), groups = (n + kGroup - 1) / kGroup;
            if (load(0, begin, n, x) >= range_of(job_.layout).limit) refuse();
            std::fill(x + n, x + groups * kGroup, 0.0f);
            q4_encode(x, groups, tiles);
            for (std::size_t g = 0; g < groups; g++) {
                std::memcpy(scales + 2 * (begin / kGroup + g), tiles + kTile * g, 2);
                std::memcpy(nibbles + kNibbles * (begin / kGroup + g), tiles + kTile * g + 2, kNibbles);
            }
        }
    }

    // Stores the scale max(f16(most / 127), 2^-14) of a row and returns it.
    static float store_q8_scale(float most, std::uint8_t* out) {
        const float scale = std::max(f32_from_f16(f16_from_f32(most / 127.0f)), kF16Tiny);
        const std::uint16_t half = f16_exact(scale);
        std::memcpy(out, &half, 2);
        return scale;
    }

    void encode_q8(std::size_t row, std::uint8_t* quants, std::uint8_t* scales) const {
        alignas(64) float x[kCodecColumns];
        std::uint32_t most = 0;
        pieces([&](std::size_t begin, std::size_t n) { most = std::max(most, load(row, begin, n, x)); });
        if (most >= range_of(job_.layout).limit) refuse();
        const float scale = store_q8_scale(float_of(most), scales + 2 * row);
        pieces([&](std::size_t begin, std::size_t n) {
            if (weights_.cols > kCodecColumns) load(row, begin, n, x);
            ops_.q8_quantize(x, n, scale, quants + row * weights_.cols + begin);
        });
    }

    void encode_q8_2f(std::size_t row, std::uint8_t* quants, std::uint8_t* scales) {
        ops_.q8_2f_divide(job_.survey.data(), weights_.cols, row_.data());
        const float most = std::max(float_of(ops_.absmax_bits(row_.data(), weights_.cols)), 1e-12f);
        const float scale = store_q8_scale(most, scales + 2 * row);
        ops_.q8_quantize(row_.data(), weights_.cols, scale, quants + row * weights_.cols);
    }

    void encode_q1(std::size_t row, std::uint8_t* plane) const {
        float threshold = std::numeric_limits<float>::infinity();
        if (job_.layout == DType::q1s) std::memcpy(&threshold, job_.survey.data(), sizeof threshold);
        const std::size_t groups = weights_.cols / kGroup;
        const bool diffuse = job_.layout == DType::q1s || job_.encoder == Encoder::diffuse;
        ops_.q1_encode(row_.data(), groups, threshold, diffuse, plane + row * groups * 6);
    }

    void encode_q1t(std::size_t row, std::uint8_t* plane) {
        const std::size_t groups = weights_.cols / kGroup;
        fits_.resize(2 * groups);
        ops_.q1t_encode(row_.data(), groups, fits_.data(), plane + row * groups * 9);
    }

    void encode_ladder(std::size_t row, std::span<std::uint8_t* const> planes) {
        const std::size_t groups = weights_.cols / kGroup;
        const bool four = job_.layout == DType::q4tp;
        fits_.resize(groups);
        (four ? ops_.q4tp_encode : ops_.q2tp_encode)(
            row_.data(), groups, job_.encoder == Encoder::best,
            {planes[0] + row * groups * (four ? 16 : 8), planes[1] + 4 * row,
             planes[2] + row * ((5 * groups + 7) / 8), fits_.data()});
    }

    void encode_vbit(std::size_t row, std::uint8_t* widths, std::uint8_t* scales) const {
        const std::size_t groups = weights_.cols / kGroup;
        widths[row] = std::uint8_t(width_of(row));
        ops_.vbit_scales(row_.data(), groups, width_of(row), scales + 2 * groups * row);
    }

    // Names the first weight that is not finite, or else the first that is too large: as the definition does.
    [[noreturn]] void refuse() const {
        refuse_first([](std::size_t) { return kInfinityBits; }, "value", " is not finite");
        refuse_first([this](std::size_t row) { return limit_of(row); }, "range",
                     std::string(" is too large for ") + range_of(job_.layout).what);
        throw Error("CortiqError", "internal", "the weights changed while they were encoded");
    }

    template <class Limit>
    void refuse_first(Limit limit_of_row, const char* code, const std::string& problem) const {
        alignas(64) float x[kCodecColumns];
        rows([&](std::size_t row) {
            pieces([&](std::size_t begin, std::size_t n) {
                const std::uint32_t limit = limit_of_row(row);
                if (load(row, begin, n, x) < limit) return;
                std::size_t i = 0;
                while ((bits_of(x[i]) & 0x7fffffff) < limit) i++;
                throw Error("NonFinite", code,
                            "weight [" + std::to_string(job_.first_row + row) + ", " + std::to_string(begin + i) + "]" +
                                problem);
            });
        });
    }

    const CodecOps& ops_;
    const EncodeJob& job_;
    const Weights& weights_;
    std::vector<float> row_, fits_;
};

}  // namespace

void encode_rows(const EncodeJob& job, std::span<std::uint8_t* const> planes) {
    check_job(job);
    RowEncoder(job).run(planes);
}

void row_absmax(Isa isa, const Weights& weights, std::size_t first_row, float* out) {
    const EncodeJob job{isa, DType::f32, Encoder::plain, weights, {}, first_row};
    RowEncoder(job).absmax(out);
}

void vbit_pack(Isa isa, const Weights& weights, const std::uint8_t* widths, std::uint8_t* packed) {
    check_widths({widths, weights.rows}, 0);
    const EncodeJob job{isa, DType::vbit, Encoder::plain, weights, {widths, weights.rows}, 0};
    RowEncoder(job).pack_vbit(packed);
}

}  // namespace cortiq
