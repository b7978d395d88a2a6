// Writes ONNX files.
#pragma once

#include <cstdint>
#include <filesystem>

#include "export/onnx_model.hpp"

namespace npu_train::onnx {

/// What a written model consists of.
struct WrittenModel {
  uint64_t bytes = 0;            ///< of the file
  std::filesystem::path data{};  ///< the file with the weights; empty if they are in the model's file
  uint64_t data_bytes = 0;
};

/// Writes the model to `path`, complete or not at all. If its weights have more than `external_above` bytes, those of 1 KiB or more are
/// written to a second file in the same folder, each at a multiple of 4096 bytes: PATH.<hash of the content>.data. As its name depends on
/// its content, an older model at `path` stays valid until it is replaced; the data of a replaced model are removed.
/// Error(Checkpoint) if a file cannot be written.
WrittenModel write_onnx(const std::filesystem::path& path, const OnnxModel& model, uint64_t external_above);

}  // namespace npu_train::onnx
