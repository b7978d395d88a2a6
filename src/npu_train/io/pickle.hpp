/// Reads files of Python's `torch.save`, without Python and without executing code; writes one tensor as `torch.save` does.
///
/// A .pth file is a zip archive with a pickle inside. A pickle is a program; this reader implements only the instructions that build dicts,
/// lists, tuples, strings, numbers and tensors. Classes and functions outside a short list are rejected by name before they have an effect.
/// This reader exists because torch::pickle_load returns None for a dict with parameters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "npu_train/io/safetensors.hpp"

namespace npu_train {

struct PthFile {
  /// Tensors in the file's order. Names of nested dicts and lists are joined by dots ("state_dict.conv1.weight",
  /// "optimizer.state.0.exp_avg"). Tensors that shared memory when they were saved share it again.
  NamedTensors tensors;
  /// Names of leaves that are not tensors ("epoch").
  std::vector<std::string> skipped;
  /// The skipped leaves that are integers.
  std::map<std::string, int64_t> integers;
};

/// True for the usual extensions of files of `torch.save`: .pth, .pt, .bin and .ckpt, in upper or lower case, also followed by .tar.
bool is_pth_name(const std::filesystem::path& path);

/// Reads a file written by `torch.save` (stored or deflated, zip64 too, and the format before PyTorch 1.6). Expanded tensors (strides of 0)
/// may have more elements than their storages; at most 2^26 in total.
/// Error(Checkpoint) for a damaged file, anything that would execute code, tensors that extend beyond their storage, sparse or quantised
/// tensors, big-endian files, TorchScript archives, and tar archives of PyTorch before 0.1.10; the message explains how to save the file
/// again.
PthFile load_pth(const std::filesystem::path& path);

/// Writes one tensor as `torch.save(tensor, path)` does, for `torch.load(path, weights_only=True)`: row-major, without gradient, aligned to
/// 64 bytes. The data are written from the tensor's own memory; only a tensor that is not contiguous or not on the host is copied first.
/// Equal values give equal files. Dtypes: float64/32/16, bfloat16, int64/32/16/8, uint8, bool; Error(Usage) for others, Error(Checkpoint)
/// if the file cannot be written.
WrittenFile save_pt(const std::filesystem::path& path, const at::Tensor& tensor, Durability durability = Durability::Synced);

}  // namespace npu_train
