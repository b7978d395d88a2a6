// Parts of the comparison of weights.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "npu_train/io/safetensors.hpp"
#include "npu_train/tools/align/compare.hpp"

namespace npu_train::detail {

// The tensors of a checkpoint or of a file of weights. If the format allows it, a tensor is read only on request.
class StoredWeights {
 public:
  struct Entry {
    std::string part;  // model | optimizer | ema
    std::string name;  // "conv1.weight"; for the optimizer, the parameter's name and the slot: "conv1.weight.momentum"
    std::string key;   // name in its file
    size_t file = 0;   // index into files_; unused for tensors in memory
    at::ScalarType dtype = at::kFloat;
    std::vector<int64_t> shape{};
  };

  explicit StoredWeights(const std::filesystem::path& path);

  const std::vector<Entry>& entries() const { return entries_; }
  at::Tensor read(const Entry& entry) const;
  bool has(const std::string& part) const;
  // Returns the groups of two or more names of model tensors that share one tensor in memory; empty for .safetensors, which stores the
  // values of each name separately.
  std::vector<std::vector<std::string>> tied() const;
  // Returns the metadata of the checkpoint, and single values of its state ("scaler.scale").
  const std::map<std::string, std::string>& facts() const { return facts_; }

 private:
  void open_checkpoint(const std::filesystem::path& folder);
  void add_safetensors(const std::filesystem::path& file, const std::string& part);
  // Adds a part of a checkpoint that ranks wrote in slices.
  void add_joined(const std::filesystem::path& folder, const std::string& part);
  void add_pth(const std::filesystem::path& file);
  void drop_prefixes();
  void restore_order();

  std::vector<Entry> entries_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, at::Tensor> in_memory_;
  std::map<std::string, std::string> facts_;
};

// Returns the layers of one side as calls of a dump, so that they can be matched like the calls of dumps. The `data_name` of each item is
// the index of its entry. `mapping`: see CompareOptions; replaces names of tensors by those in B. `parts`: the parts to compare.
DumpStep layers_of(const StoredWeights& weights, const std::set<std::string>& parts, const std::map<std::string, std::string>& mapping);

// Describes the names that share a tensor in `here` but not in `there`.
std::vector<std::string> ties_broken(const StoredWeights& here, const StoredWeights& there, const std::string& here_name,
                                     const std::string& there_name);

// Returns the first layer that differs, with likely causes.
Divergence first_difference_of(const StepComparison& step, const std::map<std::string, std::string>& facts_a,
                               const std::map<std::string, std::string>& facts_b);

}  // namespace npu_train::detail
