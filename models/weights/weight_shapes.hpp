// Reads options of a network from the shapes of its weights.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "npu_train/io/safetensors.hpp"

namespace npu_train::detail {

// Configuration keys with their values: {"model.depth", "12"}.
using ConfigurationKeys = std::vector<std::pair<std::string, std::string>>;

class WeightShapes {
 public:
  // `tensors` must have our names.
  explicit WeightShapes(const NamedTensors& tensors);

  // Returns -1 if the tensor or dimension does not exist.
  int64_t size(const std::string& name, size_t dimension) const;
  // Counts the layers by their tensors `before` + number + `after`, which are numbered from 0 without a gap.
  int64_t layers(const std::string& before, const std::string& after) const;
  // Returns the value of tie_embeddings: "true" if the head is the token embedding, "false" if it is another tensor.
  std::string tied_head() const;

 private:
  std::unordered_map<std::string, at::Tensor> tensors_;
};

// Appends model.KEY unless the value is below 0.
void add(ConfigurationKeys& keys, const std::string& key, int64_t value);

}  // namespace npu_train::detail
