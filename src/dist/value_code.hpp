// Encodings of numbers in fewer bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace npu_train::detail {

// Encodes rows of fp32 as rows of bytes. Integers are stored as an fp32 scale for each block of 256 numbers (the last block may be
// shorter), followed by the numbers; eight numbers of b bits take b bytes. A non-finite number is decoded as non-finite, or makes its block
// non-finite.
class ValueCode {
 public:
  // `name`: fp32 | bf16 | fp16 | int8
  explicit ValueCode(const std::string& name);
  // Encodes as integers of 2 to 8 bits.
  explicit ValueCode(int bits) : dtype_(at::kChar), bits_(bits) {}
  // Returns the encoded size of a row of n numbers.
  int64_t bytes(int64_t n) const;
  // Converts fp32 [rows, n] to uint8 [rows, bytes(n)].
  at::Tensor encode(const at::Tensor& rows) const;
  // Converts uint8 [rows, bytes(n)] to fp32 [rows, n].
  at::Tensor decode(const at::Tensor& coded, int64_t n) const;
  bool has_few_bits() const { return bits_ < 8; }

 private:
  at::ScalarType dtype_;
  int bits_ = 8;  // used only for integers
};

// Returns [rows, n] as [rows, blocks, 256], padded with zeros.
at::Tensor in_blocks(const at::Tensor& rows);

}  // namespace npu_train::detail
