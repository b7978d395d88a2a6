/// One tensor in NumPy's .npy format (version 1.0; https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html). We implement it
/// ourselves, because libtorch does not. Sizes are checked against the file before memory is allocated; Python objects are rejected.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

#include "npu_train/io/file.hpp"

namespace npu_train {

/// Writes atomically, in C order. Dtypes: float64/32/16, int64/32/16/8, uint8, bool; Error(Usage) for others (NumPy has no bfloat16:
/// convert first), Error(Checkpoint) if the file cannot be written.
void save_npy(const std::filesystem::path& path, const at::Tensor& tensor, Durability durability = Durability::Synced);

/// Reads versions 1 to 3, C and Fortran order, little-endian. Error(Data) if the file is damaged, or contains objects or another dtype.
at::Tensor load_npy(const std::filesystem::path& path);

}  // namespace npu_train
