/// A file of torch.save in its format before PyTorch 1.6: pickles, then the storages one after another.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "io/tensors/unpickler.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::detail {

class LegacyTorchFile {
 public:
  /// True if a file that begins with these bytes (64 are enough) has this format.
  static bool begins(std::string_view start);

  /// Runs the pickles, each of at most `largest_pickle` bytes, and finds every storage. Error(`file.kind()`) for an invalid file.
  /// Reference: torch.serialization, _legacy_save and _legacy_load.
  LegacyTorchFile(ReadableFile file, uint64_t largest_pickle);

  /// The saved value.
  const PickleValue& result() const { return value_->result(); }
  /// Error(kind) unless the file has the storage of a tensor, in the claimed size. Here and below, `name` is used in messages.
  void check_storage(const PickledTensor& tensor, const std::string& name) const;
  /// Reads the storage of a tensor.
  void read_storage(const PickledTensor& tensor, const std::string& name, void* out) const;

 private:
  template <class... Parts>
  void require(bool ok, const Parts&... parts) const;
  std::unique_ptr<Unpickler> next_pickle(uint64_t largest);
  void find_storages(const PickleValue& keys);

  ReadableFile file_;
  std::string source_;
  uint64_t at_ = 0;
  std::unique_ptr<Unpickler> value_;
  struct Place {
    uint64_t begin, bytes;
  };
  std::unordered_map<std::string, Place> places_;  // location of each storage's elements, by key
};

}  // namespace npu_train::detail
