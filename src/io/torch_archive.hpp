/// A file of torch.save: the archive, its pickle, and the claims that the pickle makes about the archive's storages.
#pragma once

#include <cstdint>
#include <string>

#include "io/unpickler.hpp"
#include "io/zip_archive.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::detail {

/// Elements of the tensor, after a check that all of them are in the claimed storage. A tensor with strides of 0 may have more elements
/// than its storage, up to `most_expanded`. `name` is used in messages, with the `source`. Error(`kind`).
uint64_t checked_numel(const PickledTensor& tensor, const std::string& name, const std::string& source, ErrorKind kind,
                       uint64_t most_expanded = 0);

class TorchArchive {
 public:
  /// Bounds for what is read at once, in bytes.
  struct Limits {
    uint64_t pickle;
    uint64_t directory;
  };

  /// Error(`file.kind()`) for a file that is no sound archive of torch.save, or one of its other formats; the message says how to save it
  /// again.
  TorchArchive(ReadableFile file, const Limits& limits);

  const ZipArchive& zip() const { return zip_; }
  /// Runs the pickle.
  Unpickler unpickle() const;

  /// The entry of the tensor's storage, after a check that it has the size that the pickle claims.
  std::string checked_storage(const PickledTensor& tensor, const std::string& name) const;

 private:
  template <class... Parts>
  void require(bool ok, const Parts&... parts) const;

  std::string source_;
  ZipArchive zip_;
  std::string prefix_;  // "archive/"
};

}  // namespace npu_train::detail
