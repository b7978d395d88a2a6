/// Reads files of Python's `torch.save`, without Python and without executing code; writes one tensor as `torch.save` does.
///
/// A .pth file is a zip archive with a pickle inside. A pickle is a program; this reader knows only the handful of instructions that
/// build dicts, lists, tuples, strings, numbers and tensors. Any other class or function in a file, unless it is on a short list, is
/// rejected by name before it has an effect.
/// Our own because torch::pickle_load does not read such files: it returns None for a dict with parameters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "npu_train/io/safetensors.hpp"

namespace npu_train {

struct PthFile {
  /// In the file's order; names of nested dicts and lists joined by dots ("state_dict.conv1.weight", "optimizer.state.0.exp_avg").
  /// Tensors that shared memory when they were saved also share it after reading.
  NamedTensors tensors;
  /// Names of leaves that are not tensors ("epoch").
  std::vector<std::string> skipped;
  /// Those of them that are whole numbers.
  std::map<std::string, int64_t> integers;
};

/// True for .pth, .pt, .bin and .ckpt, in any case, also with .tar appended: the usual names of files of `torch.save`.
bool is_pth_name(const std::filesystem::path& path);

/// Reads a file written by `torch.save` (stored or deflated, zip64 too, and the format before PyTorch 1.6). A tensor that is expanded
/// (strides of 0) may have more elements than its storage, all of these together at most 2^26.
/// Error(Checkpoint) for a damaged file, anything that would execute code, tensors that extend beyond their storage, sparse or quantised
/// tensors, big-endian files, TorchScript archives, and tar archives of PyTorch before 0.1.10; the message explains how to save the file
/// again.
PthFile load_pth(const std::filesystem::path& path);

/// Writes one tensor as `torch.save(tensor, path)` does, for `torch.load(path, weights_only=True)`: row-major, without its gradient, the
/// data at a multiple of 64 bytes, from the tensor's own memory (only a tensor that is not contiguous or not on the host is copied first).
/// The same values give the same file.
/// float64/32/16, bfloat16, int64/32/16/8, uint8, bool; Error(Usage) for others, Error(Checkpoint) if it cannot be written.
WrittenFile save_pt(const std::filesystem::path& path, const at::Tensor& tensor, Durability durability = Durability::Synced);

}  // namespace npu_train
