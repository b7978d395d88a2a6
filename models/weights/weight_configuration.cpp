// Derives configuration keys from the shapes of weights.
#include <ATen/ops/equal.h>

#include "models/families.hpp"
#include "npu_train/models/weights.hpp"

namespace npu_train {
namespace detail {

WeightShapes::WeightShapes(const NamedTensors& tensors) : tensors_(tensors.begin(), tensors.end()) {}

int64_t WeightShapes::size(const std::string& name, size_t dimension) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() || found->second.dim() <= static_cast<int64_t>(dimension)
             ? -1
             : found->second.size(static_cast<int64_t>(dimension));
}

int64_t WeightShapes::layers(const std::string& before, const std::string& after) const {
  int64_t count = 0;
  while (tensors_.count(before + std::to_string(count) + after) != 0) ++count;
  return count;
}

std::string WeightShapes::tied_head() const {
  const auto tensor = [&](const char* name) {
    const auto found = tensors_.find(name);
    return found != tensors_.end() ? found->second : at::Tensor();
  };
  const auto head = tensor("head.weight"), embedding = tensor("token_embedding.weight");
  return !head.defined() || (head.sizes() == embedding.sizes() && at::equal(head, embedding)) ? "true" : "false";
}

void add(ConfigurationKeys& keys, const std::string& key, int64_t value) {
  if (value >= 0) keys.emplace_back("model." + key, std::to_string(value));
}

}  // namespace detail

std::vector<std::pair<std::string, std::string>> configuration_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, value] : tensors) names.push_back(name);
  const auto found = detail::known_naming(names);
  const bool own = found.naming != nullptr && found.naming == &found.family->namings.front();
  return own ? found.family->keys_of(detail::WeightShapes(tensors)) : detail::ConfigurationKeys();
}

}  // namespace npu_train
