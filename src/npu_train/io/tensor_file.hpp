/// One tensor in a file, read in pieces: for a comparison of dumps that are larger than the memory.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

namespace npu_train {

/// A file with one tensor, opened for reading: a .pt of `torch.save(tensor, path)` (also of a Parameter and of an NPU tensor) or a .npy,
/// depending on the content. open() reads and checks only the description, by the rules of `load_pth` and `load_npy`; elements are read on
/// request.
///
/// Every failure of a file is an Error(Data) with its path: a damaged file, a description that contradicts the content, anything that would
/// execute code, more or less than one tensor, complex, quantised or sparse tensors, a folder, a pipe. A file must not change while it is
/// open.
///
/// A const TensorFile may be read by several threads at once.
class TensorFile {
 public:
  static TensorFile open(const std::filesystem::path& path);
  ~TensorFile();
  TensorFile(TensorFile&&) noexcept;
  TensorFile& operator=(TensorFile&&) noexcept;

  const std::filesystem::path& path() const;
  /// Dtype of the elements, as in the file: float64/32/16, bfloat16, int64/32/16/8, uint8 or bool (0 or 1).
  at::ScalarType dtype() const;
  const std::vector<int64_t>& sizes() const;
  /// Strides in elements, as saved; row-major for a tensor without elements.
  const std::vector<int64_t>& strides() const;
  int64_t numel() const;

  /// True if `read` gets its elements directly from the file, as for an uncompressed row-major tensor. Otherwise the first `read` loads the
  /// tensor's memory range and keeps it.
  bool streams() const;
  /// Reads elements [first, first + count) in logical (row-major) order, for all strides; `out` has count * element size bytes. Reading all
  /// elements of a .pt also checks the archive's CRC-32 if the storage contains only this tensor; reading pieces does not. Error(Usage) for
  /// a range outside the tensor.
  void read(int64_t first, int64_t count, void* out) const;

  /// True if the elements fill their memory without gaps or overlaps (row-major, channels_last, transposed, Fortran order): the requirement
  /// of `read_storage_order`.
  bool is_dense() const;
  /// True if both are dense, have equal sizes, and have the same order in memory (dtypes may differ): the n-th element in storage order is
  /// then the same element of both tensors.
  bool same_order_as(const TensorFile& other) const;
  /// Like `read`, but in memory order. Reads directly from the file whatever the order is, unless the entry is compressed. Error(Usage) if
  /// the tensor is not dense.
  void read_storage_order(int64_t first, int64_t count, void* out) const;

 private:
  struct State;
  explicit TensorFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace npu_train
