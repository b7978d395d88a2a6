// Writes ONNX files.
#pragma once

#include <cstdint>
#include <filesystem>

#include "export/onnx_model.hpp"

namespace npu_train::onnx {

/// The files of a written model.
struct WrittenModel {
  uint64_t bytes = 0;            ///< size of the model's file
  std::filesystem::path data{};  ///< the file with the weights; empty if they are in the model's file
  uint64_t data_bytes = 0;
};

/// Writes the model to `path`, completely or not at all. If the weights exceed `external_above` bytes in total, those of at least 1 KiB go
/// into a data file in the same folder, aligned to 4096 bytes: PATH.<hash of the content>.data. The name depends on the content, so an
/// older model at `path` stays valid until it is replaced; its data file is then removed. Error(Checkpoint) if a file cannot be written.
WrittenModel write_onnx(const std::filesystem::path& path, const OnnxModel& model, uint64_t external_above);

}  // namespace npu_train::onnx
