// Provides the tensors in a file under the names of our network.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "models/weights/weight_rules.hpp"
#include "npu_train/models/weights.hpp"

namespace npu_train::detail {

// Prefixes of the parts of a split projection, in the order of a fused one.
inline constexpr const char* kProjections[] = {"q_proj.", "k_proj.", "v_proj."};

class WeightSource {
 public:
  // `wanted` must contain the names of later take() calls. Other names are translated if the file is of a known network. Findings are added
  // to `report`. All references must outlive this object.
  WeightSource(const NamedTensors& tensors, const std::unordered_set<std::string>& wanted, WeightsReport& report);

  // Returns the network of the file, or nullptr if it is unknown.
  const ModelFamily* family() const { return naming_.family; }
  // Returns the tensor `name`, taken directly, fused or split; undefined if the file does not provide it.
  at::Tensor take(const std::string& name);
  // Returns whether the file has the tensor `name`, in any naming.
  bool has(const std::string& name) const { return by_name_.count(name) != 0; }
  // The file's tensors under their translated names, in the file's order.
  const NamedTensors& translated() const { return translated_; }

  // Adds the names that no take() has used to the report.
  void list_unused(const std::string& head);

 private:
  struct Entry {
    std::string name;  // name in the file
    at::Tensor value;
  };

  std::string plain_name(const std::string& name);
  void check_tied(const Entry& first, const Entry& second, const std::string& ours);
  at::Tensor use(const std::string& name);
  at::Tensor fused(const std::string& name);
  at::Tensor split(const std::string& name);

  const NamedTensors& tensors_;
  NamedTensors translated_;
  const std::unordered_set<std::string>& wanted_;
  WeightsReport& report_;
  KnownNaming naming_;
  std::unordered_map<std::string, Entry> by_name_;
  std::unordered_set<std::string> used_;
};

}  // namespace npu_train::detail
