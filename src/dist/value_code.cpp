#include "dist/value_code.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/where.h>

namespace npu_train::detail {
namespace {

constexpr double kLargest = 127;

int64_t blocks_of(int64_t n) { return (n + ValueCode::kBlock - 1) / ValueCode::kBlock; }

// [rows, n] as [rows, blocks, 256], zeros behind the end.
at::Tensor in_blocks(const at::Tensor& rows) {
  const auto n = rows.size(1), padded = blocks_of(n) * ValueCode::kBlock;
  const auto full = padded == n ? rows : at::constant_pad_nd(rows, {0, padded - n});
  return full.view({rows.size(0), blocks_of(n), ValueCode::kBlock});
}

at::Tensor bytes_of(const at::Tensor& rows) { return rows.contiguous().view(at::kByte); }

// Rows of bytes as rows of numbers.
at::Tensor numbers_of(const at::Tensor& rows, at::ScalarType dtype) {
  return rows.contiguous().view({-1}).view(dtype).view({rows.size(0), -1});
}

at::Tensor int8_bytes(const at::Tensor& rows) {
  const auto values = in_blocks(rows);
  const auto scales = values.abs().amax(-1, /*keepdim=*/true).div_(kLargest);
  const auto divisors = at::where(scales == 0, 1.0, scales);
  // A block with infinities has an infinite scale, and zeros times that are NaN.
  const auto codes = values.div(divisors).round_().clamp_(-kLargest, kLargest).nan_to_num_(0).to(at::kChar);
  const auto n = rows.size(1);
  return at::cat({bytes_of(scales.squeeze(-1)), bytes_of(codes.view({rows.size(0), -1}).narrow(1, 0, n))}, 1);
}

at::Tensor from_int8(const at::Tensor& coded, int64_t n) {
  const auto blocks = blocks_of(n), scale_bytes = blocks * 4;
  const auto scales = numbers_of(coded.narrow(1, 0, scale_bytes), at::kFloat).unsqueeze(-1);
  const auto codes = numbers_of(coded.narrow(1, scale_bytes, n), at::kChar).to(at::kFloat);
  return in_blocks(codes).mul(scales).view({coded.size(0), -1}).narrow(1, 0, n);
}

}  // namespace

ValueCode::ValueCode(const std::string& name)
    : dtype_(name == "bf16"   ? at::kBFloat16
             : name == "fp16" ? at::kHalf
             : name == "int8" ? at::kChar
                              : at::kFloat) {}

int64_t ValueCode::bytes(int64_t n) const {
  return n * static_cast<int64_t>(c10::elementSize(dtype_)) + (dtype_ == at::kChar ? 4 * blocks_of(n) : 0);
}

at::Tensor ValueCode::encode(const at::Tensor& rows) const { return dtype_ == at::kChar ? int8_bytes(rows) : bytes_of(rows.to(dtype_)); }

at::Tensor ValueCode::decode(const at::Tensor& coded, int64_t n) const {
  if (dtype_ == at::kChar) return from_int8(coded, n);
  return numbers_of(coded, dtype_).to(at::kFloat);
}

}  // namespace npu_train::detail
