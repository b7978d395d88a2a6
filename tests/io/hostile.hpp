/// Requirements on the readers of hostile files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>

#include "io/archives.hpp"
#include "npu_train/io/pickle.hpp"
#include "npu_train/io/tensor_file.hpp"

namespace npu_train::testing {

/// Opens a file and reads all of it, in pieces and at once, in both orders.
inline void read_tensor_file(const std::filesystem::path& path) {
  const auto file = TensorFile::open(path);
  REQUIRE(file.numel() < (int64_t{1} << 24));
  std::string out(static_cast<size_t>(file.numel()) * c10::elementSize(file.dtype()), '\0');
  for (int64_t i = 0; i < std::min<int64_t>(file.numel(), 20); ++i) file.read(i, 1, out.data());
  file.read(0, file.numel(), out.data());
  if (file.is_dense()) file.read_storage_order(0, file.numel(), out.data());
}

/// Checks that load_pth and TensorFile refuse the file with their kind of error, the path and the same words.
inline void check_refused(const std::filesystem::path& path, const std::string& part) {
  const auto loaded = error_of([&] { load_pth(path); });
  CAPTURE(part);
  CAPTURE(std::string(loaded.what()));
  CHECK(loaded.kind() == ErrorKind::Checkpoint);
  CHECK(has(loaded.what(), path.string()));
  CHECK(has(loaded.what(), part));
  const auto opened = error_of([&] { read_tensor_file(path); });
  CAPTURE(std::string(opened.what()));
  CHECK(opened.kind() == ErrorKind::Data);
  CHECK(has(opened.what(), path.string()));
  CHECK(has(opened.what(), part));
}

}  // namespace npu_train::testing
