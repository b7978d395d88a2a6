#include "dist/value_code.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/where.h>

#include "npu_train/dist/compression.hpp"

namespace npu_train::detail {
namespace {

constexpr int64_t kTogether = 8;  // number of integers that are packed in one word

int64_t words_of(int64_t n) { return (n + kTogether - 1) / kTogether; }
// Returns the largest magnitude of a signed integer with `bits` bits.
int64_t largest_of(int bits) { return (int64_t{1} << (bits - 1)) - 1; }

int64_t blocks_of(int64_t n) { return (n + Compression::kBlock - 1) / Compression::kBlock; }

}  // namespace

at::Tensor in_blocks(const at::Tensor& rows) {
  const auto n = rows.size(1), padded = blocks_of(n) * Compression::kBlock;
  const auto full = padded == n ? rows : at::constant_pad_nd(rows, {0, padded - n});
  return full.view({rows.size(0), blocks_of(n), Compression::kBlock});
}

namespace {

at::Tensor bytes_of(const at::Tensor& rows) { return rows.contiguous().view(at::kByte); }

// Converts rows of bytes to rows of numbers.
at::Tensor numbers_of(const at::Tensor& rows, at::ScalarType dtype) {
  return rows.contiguous().view({-1}).view(dtype).view({rows.size(0), -1});
}

// Packs [rows, n] of kChar into `bits` bits each. Eight integers share a word of 64 bits; the first one has the lowest bits.
at::Tensor packed(const at::Tensor& codes, int bits) {
  if (bits == 8) return bytes_of(codes);
  const auto words = words_of(codes.size(1));
  const auto eights = at::constant_pad_nd(codes.add(largest_of(bits)), {0, words * kTogether - codes.size(1)}).view({-1, words, kTogether});
  auto out = eights.select(2, 0).to(at::kLong);
  for (int64_t i = 1; i < kTogether; ++i) out.bitwise_or_(eights.select(2, i).to(at::kLong).mul_(int64_t{1} << (bits * i)));
  return out.view(at::kByte).view({-1, words, kTogether}).narrow(2, 0, bits).reshape({codes.size(0), -1});
}

// Returns [rows, n] of kFloat.
at::Tensor unpacked(const at::Tensor& bytes, int64_t n, int bits) {
  if (bits == 8) return numbers_of(bytes, at::kChar).to(at::kFloat);
  const auto words = words_of(n);
  const auto rest = bytes.reshape({-1, words, bits});
  const auto eights = at::constant_pad_nd(rest, {0, kTogether - bits}).view({-1}).view(at::kLong).view({-1, words});
  auto out = at::empty({bytes.size(0), words, kTogether}, bytes.options().dtype(at::kFloat));
  for (int64_t i = 0; i < kTogether; ++i)
    out.select(2, i).copy_(eights.bitwise_right_shift(bits * i).bitwise_and_((int64_t{1} << bits) - 1));
  return out.sub_(largest_of(bits)).view({bytes.size(0), -1}).narrow(1, 0, n);
}

// Returns integers, not yet converted to kChar. In a block with infinities the scale is infinite, and the block's zeros are decoded as NaN.
at::Tensor integers(const at::Tensor& values, const at::Tensor& scales, int bits) {
  const auto largest = static_cast<double>(largest_of(bits));
  return values.div(at::where(scales == 0, 1.0, scales)).round_().clamp_(-largest, largest).nan_to_num_(0);
}

// Returns the scale of each block, which maps the largest element to the largest integer. With few bits the scale may be smaller and clip
// the largest elements, if clipping loses less than rounding the small elements of the block to zero.
at::Tensor scales_of(const at::Tensor& values, int bits) {
  const auto full = values.abs().amax(-1, /*keepdim=*/true).div_(static_cast<double>(largest_of(bits)));
  if (bits == 8) return full;
  const auto loss = [&](const at::Tensor& scales) {
    return integers(values, scales, bits).mul_(scales).sub_(values).square_().sum(-1, /*keepdim=*/true);
  };
  auto best = full, least = loss(full);
  for (const double share : {0.7, 0.5, 0.35}) {
    const auto scales = full * share, lost = loss(scales);
    best = at::where(lost < least, scales, best);
    least = at::minimum(least, lost);
  }
  return best;
}

at::Tensor integer_bytes(const at::Tensor& rows, int bits) {
  const auto values = in_blocks(rows);
  const auto scales = scales_of(values, bits);
  const auto codes = integers(values, scales, bits).to(at::kChar);
  const auto n = rows.size(1);
  return at::cat({bytes_of(scales.squeeze(-1)), packed(codes.view({rows.size(0), -1}).narrow(1, 0, n), bits)}, 1);
}

at::Tensor from_integers(const at::Tensor& coded, int64_t n, int bits) {
  const auto blocks = blocks_of(n), scale_bytes = blocks * 4;
  const auto scales = numbers_of(coded.narrow(1, 0, scale_bytes), at::kFloat).unsqueeze(-1);
  const auto codes = unpacked(coded.narrow(1, scale_bytes, coded.size(1) - scale_bytes), n, bits);
  return in_blocks(codes).mul(scales).view({coded.size(0), -1}).narrow(1, 0, n);
}

}  // namespace

ValueCode::ValueCode(const std::string& name)
    : dtype_(name == "bf16"   ? at::kBFloat16
             : name == "fp16" ? at::kHalf
             : name == "int8" ? at::kChar
                              : at::kFloat) {}

int64_t ValueCode::bytes(int64_t n) const {
  if (dtype_ != at::kChar) return n * static_cast<int64_t>(c10::elementSize(dtype_));
  return Compression::integer_bytes(n, bits_);
}

at::Tensor ValueCode::encode(const at::Tensor& rows) const {
  return dtype_ == at::kChar ? integer_bytes(rows, bits_) : bytes_of(rows.to(dtype_));
}

at::Tensor ValueCode::decode(const at::Tensor& coded, int64_t n) const {
  if (dtype_ == at::kChar) return from_integers(coded, n, bits_);
  return numbers_of(coded, dtype_).to(at::kFloat);
}

}  // namespace npu_train::detail
