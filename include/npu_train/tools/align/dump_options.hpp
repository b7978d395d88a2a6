/// The content of a dump of a training run: section `dump` of a configuration, and the options of a Dumper.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/core/config_table.hpp"

namespace npu_train {

/// Names and meanings are those of Ascend's msprobe if it has the option. All random draws depend only on `seed` and names, so that two
/// runs select the same calls.
struct DumpOptions {
  /// module (L0): layers; op (L1): operators; mix: both, with operators under their layers; debug: values that the program names
  /// (nn/layer_scope.hpp, Dumper::save)
  std::string level = "module";
  std::string task = "statistics";   ///< statistics | tensor: also the values | overflow_check: only non-finite tensors, with their values
  std::vector<std::string> steps{};  ///< windows, from 0: "0", "4-6"; empty: all
  std::vector<std::string> scope{};  ///< [first, last]: from the first call with the first name to the end of the last one, in call order
  std::vector<std::string> list{};   ///< names or parts of names, "*" matches anything: "layer1", "*.conv2", "layer1.*"; empty: all
  std::vector<int64_t> ranks{};      ///< empty: all
  std::vector<std::string> data_mode{};  ///< words of forward, backward, input, output, parameters_grad, optimizer; empty: all
  double sample = 1.0;                   ///< fraction of layers, drawn by name and seed
  double sample_elements = 1.0;          ///< task tensor: fraction of the elements of each tensor, drawn by seed
  int64_t seed = 0;                      ///< seed of both samples
  std::string summary = "statistics";    ///< statistics: max, min, mean and L2 norm | crc32: only the checksum of the bytes
  std::string format = "pt";             ///< task tensor: pt (torch.save) | npy (bf16 as fp32)
  bool async = true;                     ///< task tensor: a separate thread writes, with at most 512 MiB queued
  std::string dir{};                     ///< "": `dump` in the run's folder, or in the working directory
  static const ConfigTable<DumpOptions>& config_table();
};

/// Ranges of steps, as written in DumpOptions::steps.
class StepRanges {
 public:
  /// Error(Usage) unless the text is "N" or "N-M" with N <= M.
  explicit StepRanges(const std::vector<std::string>& texts);
  bool contains(int64_t step) const;
  /// Returns the given ranges that contain no step from `first` to `last`.
  std::vector<std::string> outside(int64_t first, int64_t last) const;

 private:
  std::vector<std::pair<int64_t, int64_t>> ranges_;
};

/// Whether `name` matches `pattern`: "*" matches any text; a pattern without "*" matches any part of the name.
bool name_matches(const std::string& name, const std::string& pattern);

/// Whether a call of a dump matches, with direction and number ("Module.layer1.0.conv1.Conv2d.forward.0") or without them. A pattern with
/// "*" may match the complete name, the name without "Module.", or only the layer's path ("layer1.*", "*.conv1").
bool call_matches(const std::string& name, const std::string& pattern);

}  // namespace npu_train
