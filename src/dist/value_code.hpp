// Numbers in fewer bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace npu_train::detail {

// Rows of fp32 as rows of bytes. Integers: one fp32 scale for each block of 256 numbers, the last one shorter, and then the numbers, eight
// of them in as many bytes as each has bits. A number that is not finite makes its block so, or itself.
class ValueCode {
 public:
  // fp32 | bf16 | fp16 | int8
  explicit ValueCode(const std::string& name);
  // Integers of 2 to 8 bits.
  explicit ValueCode(int bits) : dtype_(at::kChar), bits_(bits) {}
  // Of a row of n numbers.
  int64_t bytes(int64_t n) const;
  // fp32 [rows, n] to uint8 [rows, bytes(n)].
  at::Tensor encode(const at::Tensor& rows) const;
  // And back.
  at::Tensor decode(const at::Tensor& coded, int64_t n) const;
  bool has_few_bits() const { return bits_ < 8; }

 private:
  at::ScalarType dtype_;
  int bits_ = 8;  // of integers
};

// [rows, n] as [rows, blocks, 256], zeros behind the end.
at::Tensor in_blocks(const at::Tensor& rows);

}  // namespace npu_train::detail
