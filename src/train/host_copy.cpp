#include "train/host_copy.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <map>
#include <utility>

#include "npu_train/device/backend.hpp"

namespace npu_train::detail {
namespace {

bool copies_from_pinned(const at::Tensor& tensor) {
  const auto device = device_of(tensor.device());
  return backend_of(device).capabilities(device).pinned_memory;
}

void copy_tensor(const at::Tensor& from, at::Tensor& place) {
  const at::NoGradGuard no_grad;
  const bool fits = place.defined() && place.sizes().equals(from.sizes()) && place.scalar_type() == from.scalar_type();
  if (!fits) place = at::empty_like(from, at::TensorOptions(at::kCPU).pinned_memory(copies_from_pinned(from)));
  place.copy_(from);
}

// Removes the entries of `copy` that are not in `from`.
template <class Map>
void keep_keys_of(const Map& from, Map& copy) {
  std::erase_if(copy, [&](const auto& entry) { return from.count(entry.first) == 0; });
}

}  // namespace

void copy_to_host(const RunState& state, RunState& copy) {
  keep_keys_of(state, copy);
  for (const auto& [part, content] : state) {
    auto& to = copy[part];
    to.values = content.values;
    keep_keys_of(content.tensors, to.tensors);
    for (const auto& [name, tensor] : content.tensors) copy_tensor(tensor, to.tensors[name]);
  }
}

void copy_to_host(const StateSlices& slices, StateSlices& copy) {
  keep_keys_of(slices, copy);
  for (const auto& [part, tensors] : slices) {
    auto& to = copy[part];
    keep_keys_of(tensors, to);
    for (const auto& [name, slice] : tensors) {
      auto value = std::move(to[name].value);
      copy_tensor(slice.value, value);
      to[name] = {.value = std::move(value), .begin = slice.begin, .sizes = slice.sizes, .strides = slice.strides};
    }
  }
}

}  // namespace npu_train::detail
