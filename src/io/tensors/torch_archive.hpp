/// A file of torch.save: the archive, its pickle, and checks of the storages that the pickle describes.
#pragma once

#include <cstdint>
#include <string>

#include "io/tensors/unpickler.hpp"
#include "io/tensors/zip_archive.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::detail {

/// Returns the number of elements, after checking that all are in the claimed storage. A tensor with strides of 0 may have more elements
/// than its storage, up to `most_expanded`. Error(`kind`) names `name` and `source`.
uint64_t checked_numel(const PickledTensor& tensor, const std::string& name, const std::string& source, ErrorKind kind,
                       uint64_t most_expanded = 0);

class TorchArchive {
 public:
  /// Limits in bytes for the parts that are read as one piece.
  struct Limits {
    uint64_t pickle;
    uint64_t directory;
  };

  /// Error(`file.kind()`) if the file is not a valid archive of torch.save, or is in one of torch.save's other formats; the message
  /// explains how to save it again.
  TorchArchive(ReadableFile file, const Limits& limits);

  const ZipArchive& zip() const { return zip_; }
  /// Runs the pickle.
  Unpickler unpickle() const;

  /// Returns the entry of the tensor's storage, after checking that it has the size claimed by the pickle.
  std::string checked_storage(const PickledTensor& tensor, const std::string& name) const;

 private:
  template <class... Parts>
  void require(bool ok, const Parts&... parts) const;

  std::string source_;
  ZipArchive zip_;
  std::string prefix_;  // "archive/"
};

}  // namespace npu_train::detail
