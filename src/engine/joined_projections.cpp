#include "engine/joined_projections.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/models/weights.hpp"

namespace npu_train::detail {
namespace {

constexpr const char* kJoined = "torch checkpoint";
const std::array<std::string, 3> kParts{"q_proj.", "k_proj.", "v_proj."};

// One of the three projections of an attention.
struct Part {
  std::string stem;  // "encoder.layers.encoder_layer_0.self_attention."
  std::string kind;  // "weight", "bias"
  size_t index = 0;  // index in kParts

  std::string joined() const { return stem + "in_proj_" + kind; }
  std::string other(size_t i) const { return stem + kParts[i] + kind; }
};

std::optional<Part> part_of(const std::string& name) {
  for (const std::string kind : {"weight", "bias"})
    for (size_t i = 0; i < kParts.size(); ++i)
      if (const auto end = "self_attention." + kParts[i] + kind; name.ends_with(end))
        return Part{name.substr(0, name.size() - kParts[i].size() - kind.size()), kind, i};
  return std::nullopt;
}

at::Tensor joined_tensor(const Part& part, const std::map<std::string, at::Tensor>& tensors) {
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < kParts.size(); ++i) {
    const auto found = tensors.find(part.other(i));
    check(found != tensors.end(), ErrorKind::Checkpoint, kJoined, "there is no tensor '", part.other(i), "'");
    parts.push_back(found->second.detach());
  }
  return at::cat(parts, 0);
}

}  // namespace

bool has_split_projections(const NamedTensors& tensors) {
  std::vector<std::string> names;
  bool split = false;
  for (const auto& [name, value] : tensors) {
    names.push_back(name);
    split = split || part_of(name).has_value();
  }
  return split && !find_naming(names).family.empty();
}

NamedTensors join_projections(const NamedTensors& tensors) {
  const std::map<std::string, at::Tensor> by_name(tensors.begin(), tensors.end());
  NamedTensors out;
  for (const auto& [name, value] : tensors) {
    const auto part = part_of(name);
    if (!part)
      out.emplace_back(name, value);
    else if (part->index == 0)
      out.emplace_back(part->joined(), joined_tensor(*part, by_name));
  }
  return out;
}

ParameterSet join_projections(const ParameterSet& parameters) {
  std::map<std::string, at::Tensor> by_name;
  for (const auto& p : parameters) by_name[p.name] = p.value;
  ParameterSet out;
  for (auto p : parameters) {
    const auto part = part_of(p.name);
    if (part && part->index != 0) continue;
    if (part) p = {.name = part->joined(), .value = joined_tensor(*part, by_name), .group = p.group};
    out.add(std::move(p));
  }
  return out;
}

State join_projections(const State& optimizer) {
  State out{.tensors = {}, .values = optimizer.values};
  for (const auto& [key, value] : optimizer.tensors) {
    const auto part = part_of(key);  // the stem includes the slot
    if (!part) {
      out.tensors[key] = value;
      continue;
    }
    std::vector<at::Tensor> parts;
    for (size_t i = 0; i < kParts.size(); ++i) {
      const auto found = optimizer.tensors.find(part->other(i));
      check(found != optimizer.tensors.end(), ErrorKind::Usage, kJoined, "the optimizer has no state '", part->other(i), "', but '", key,
            "'; torchvision's network has one projection with one state; hint: take the weights alone: npu_tool weights --from RUN --to "
            "FILE.pt --as torchvision");
      parts.push_back(found->second);
    }
    if (part->index != 0) continue;
    const bool number = value.dim() == 0;
    check(!number || (at::equal(parts[0], parts[1]) && at::equal(parts[0], parts[2])), ErrorKind::Usage, kJoined, "the state '", key,
          "' differs from that of k_proj or v_proj; torchvision's network has one projection with one state");
    out.tensors[part->joined()] = number ? value : at::cat(parts, 0);
  }
  return out;
}

}  // namespace npu_train::detail
