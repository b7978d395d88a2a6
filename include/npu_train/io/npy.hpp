/// One tensor in NumPy's .npy format (version 1.0; https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
/// Ours because libtorch has no reader for it; sizes are checked against the file before memory is taken, and objects are refused.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

#include "npu_train/io/file.hpp"

namespace npu_train {

/// Writes atomically, C order. float64/32/16, int64/32/16/8, uint8, bool; Error(Usage) for others (bfloat16 does not exist in NumPy:
/// convert first), Error(Checkpoint) for the disk.
void save_npy(const std::filesystem::path& path, const at::Tensor& tensor, Durability durability = Durability::Synced);

/// Reads versions 1 to 3, C and Fortran order, little-endian. Error(Data) when the file is damaged, holds objects or another dtype.
at::Tensor load_npy(const std::filesystem::path& path);

}  // namespace npu_train
