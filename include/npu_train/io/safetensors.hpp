/// Named tensors in a file without code: the safetensors format. Layout: 8 bytes little-endian length of the header, a JSON header (names,
/// dtypes, shapes, byte ranges), the data without gaps. Reference: the format section of the safetensors documentation. We implement it
/// ourselves, because the format's library is written in Rust. Every range is checked against the file before a tensor is read.
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

/// True for the extension .safetensors, in upper or lower case.
bool is_safetensors_name(const std::filesystem::path& path);

/// Location of a tensor in its file; `begin` and `end` count from the start of the file.
struct TensorInfo {
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

/// A safetensors file opened for reading. The constructor checks the complete header (sizes, ranges, overlaps, gaps, dtypes, repeated
/// names) against the file's size; tensors are read on request. Error(`kind`) names the failed check. Dtypes: F64 F32 F16 BF16 I64 I32 I16
/// I8 U8 BOOL.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path, ErrorKind kind = ErrorKind::Checkpoint);

  /// Names in header order.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(const std::string& name) const { return infos_.count(name) != 0; }
  /// Error(kind) if there is no such tensor.
  const TensorInfo& info(const std::string& name) const;
  /// Reads a tensor into new contiguous CPU memory.
  at::Tensor tensor(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  ReadableFile file_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, TensorInfo> infos_;
  std::map<std::string, std::string> metadata_;
};

/// Writes the tensors atomically; tensors on devices are copied to the host one at a time. The header keeps the given order. In the data,
/// wider elements come first, because other readers require aligned tensors. Error(Usage) for repeated names or a dtype that the format
/// does not support, Error(Checkpoint) if the file cannot be written.
WrittenFile save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                             const std::map<std::string, std::string>& metadata = {});

/// Reads all tensors of a file, in header order.
NamedTensors load_safetensors(const std::filesystem::path& path, ErrorKind kind = ErrorKind::Checkpoint);

}  // namespace npu_train
