// Tensors of a file under the names of a network.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "models/weights/weight_rules.hpp"
#include "npu_train/models/weights.hpp"

namespace npu_train::detail {

// What the three parts of a split projection are called, in the order in which a fused one has them.
inline constexpr const char* kProjections[] = {"q_proj.", "k_proj.", "v_proj."};

class WeightSource {
 public:
  // `wanted` are the arguments of the later calls of take(); names that are not among them are translated if the file is of a known
  // network. What is noticed goes to `report`. All references must outlive this.
  WeightSource(const NamedTensors& tensors, const std::unordered_set<std::string>& wanted, WeightsReport& report);

  // The network that the file is of; nullptr if it is not known.
  const ModelFamily* family() const { return naming_.family; }
  // The tensor for `name`, found under it or put together; undefined when there is none.
  at::Tensor take(const std::string& name);
  // Whether the file has that name, in whatever naming.
  bool has(const std::string& name) const { return by_name_.count(name) != 0; }
  // The file's tensors under their translated names, in its order.
  const NamedTensors& translated() const { return translated_; }

  // Lists in the report the names of the file that were not taken.
  void list_unused(const std::string& head);

 private:
  struct Entry {
    std::string name;  // in the file
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
