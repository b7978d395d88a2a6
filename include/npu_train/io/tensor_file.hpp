/// One tensor in a file, read in pieces: for comparisons of two dumps that are larger than the memory.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

namespace npu_train {

/// A file with one tensor, opened for reading: a .pt of `torch.save(tensor, path)` (also of a Parameter and of an NPU tensor) or a .npy;
/// the content decides which. Opening it reads and checks only the description, by the same rules as `load_pth` and `load_npy`; the
/// elements are read on request.
///
/// Every failure of a file is an Error(Data) with its path: a damaged file, a claim that does not match its content, anything that would
/// execute code, more or less than one tensor, complex, quantised or sparse tensors, a folder, a pipe. A file must not change while it is
/// open.
///
/// Reads of a const TensorFile may run in several threads at once.
class TensorFile {
 public:
  static TensorFile open(const std::filesystem::path& path);
  ~TensorFile();
  TensorFile(TensorFile&&) noexcept;
  TensorFile& operator=(TensorFile&&) noexcept;

  const std::filesystem::path& path() const;
  /// float64/32/16, bfloat16, int64/32/16/8, uint8 or bool. Elements have this dtype, as in the file (a bool as 0 or 1).
  at::ScalarType dtype() const;
  const std::vector<int64_t>& sizes() const;
  /// In elements, as saved. Row-major for a tensor without elements.
  const std::vector<int64_t>& strides() const;
  int64_t numel() const;

  /// True if `read` takes its elements straight from the file: a row-major tensor that is not compressed. Otherwise the first `read`
  /// loads the memory range of the tensor once and keeps it.
  bool streams() const;
  /// Elements `first` to `first + count` in logical (row-major) order, for all strides; `out` has count * element size bytes.
  /// A call for all elements of a .pt also checks the archive's CRC-32 (if the storage contains nothing else); pieces are not checked.
  /// Error(Usage) for a range outside the tensor.
  void read(int64_t first, int64_t count, void* out) const;

  /// True if the elements fill their memory without gaps or overlaps (row-major, channels_last, transposed, Fortran order), so that
  /// `read_storage_order` is possible.
  bool is_dense() const;
  /// True if both are dense and have the same sizes and the same order in memory (dtypes may differ): the n-th element in storage order is
  /// then the same element of both tensors.
  bool same_order_as(const TensorFile& other) const;
  /// Like `read`, but in memory order; directly from the file for every order, unless it is compressed.
  /// Error(Usage) if the tensor is not dense.
  void read_storage_order(int64_t first, int64_t count, void* out) const;

 private:
  struct State;
  explicit TensorFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace npu_train
