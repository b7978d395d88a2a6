/// Tensors by name in a file that contains no code: the safetensors format.
/// Layout: 8 bytes little-endian length of the header, a JSON header (names, dtypes, shapes, byte ranges), the data without gaps.
/// Reference: the format section of the safetensors documentation.
/// Our own because the format's library is written in Rust; every range is checked with the file before a byte of a tensor is read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "npu_train/io/file.hpp"

namespace npu_train {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// True for .safetensors, in any case.
bool is_safetensors_name(const std::filesystem::path& path);

/// The position of one tensor in its file; `begin` and `end` count from the start of the file.
struct TensorInfo {
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

/// A safetensors file opened for reading. The constructor checks the complete header (sizes, ranges, overlaps, gaps, dtypes, repeated
/// names) with the file's size; tensors are read on request. Error(`kind`) names the check that failed.
/// dtypes: F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path, ErrorKind kind = ErrorKind::Checkpoint);

  /// In the order of the header.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(const std::string& name) const { return infos_.count(name) != 0; }
  /// Error(kind) if there is no such tensor.
  const TensorInfo& info(const std::string& name) const;
  /// A new contiguous CPU tensor.
  at::Tensor tensor(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  ReadableFile file_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, TensorInfo> infos_;
  std::map<std::string, std::string> metadata_;
};

/// Writes the tensors atomically; tensors on devices are copied to the host one at a time. The header keeps the given order; in the
/// data, wider elements come first so that every tensor is aligned (other readers require that).
/// Error(Usage) for repeated names or a dtype that the format does not support, Error(Checkpoint) if the file cannot be written.
WrittenFile save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                             const std::map<std::string, std::string>& metadata = {});

/// All tensors of a file, in the order of its header.
NamedTensors load_safetensors(const std::filesystem::path& path, ErrorKind kind = ErrorKind::Checkpoint);

}  // namespace npu_train
