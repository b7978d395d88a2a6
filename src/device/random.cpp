#include "npu_train/device/random.hpp"

#include <ATen/ops/tensor.h>

#include <algorithm>

#include "device/generic_backend.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"

namespace npu_train {

namespace {

constexpr const char* kPortable = "portable";

PortableRandom::Position portable_of(const State& state) {
  const auto found = state.tensors.find(kPortable);
  if (found == state.tensors.end()) return {};
  const at::Tensor& t = found->second;
  check(t.scalar_type() == at::kLong && t.numel() == 2, ErrorKind::Checkpoint, "random",
        "the saved state of the portable numbers is not one: it must be two int64");
  return {.on = true, .seed = static_cast<uint64_t>(t[0].item<int64_t>()), .next = static_cast<uint64_t>(t[1].item<int64_t>())};
}

}  // namespace

void seed_everything(uint64_t seed) {
  for (const auto* backend : all_backends())
    if (backend->is_available()) backend->seed(seed);
}

State rng_state() {
  State out;
  for (const auto* backend : all_backends())
    if (backend->is_available()) out.tensors.merge(backend->rng_state().tensors);
  if (const auto portable = PortableRandom::position(); portable.on)
    out.tensors[kPortable] = at::tensor({static_cast<int64_t>(portable.seed), static_cast<int64_t>(portable.next)});
  return out;
}

void set_rng_state(const State& state) {
  const auto before = rng_state();
  const auto portable = portable_of(state);
  try {
    for (const auto* backend : all_backends())
      if (backend->is_available()) backend->set_rng_state(state);
  } catch (...) {
    for (const auto* backend : all_backends())
      if (backend->is_available()) backend->set_rng_state(before);
    throw;
  }
  if (PortableRandom::is_on() && portable.on) PortableRandom::set_position(portable);
}

RandomState::RandomState(const std::vector<c10::Device>& devices) {
  std::vector<c10::Device> all = {c10::Device(c10::kCPU)};
  for (const auto& d : devices)
    if (std::find(all.begin(), all.end(), d) == all.end()) all.push_back(d);
  for (const auto& d : all) states_.emplace_back(d, detail::generator_state(d));
  portable_ = PortableRandom::position();
}

RandomState::Scope::Scope(const RandomState& state) : portable_before_(PortableRandom::position()) {
  PortableRandom::set_position(state.portable_);
  for (const auto& [device, values] : state.states_) {
    before_.emplace_back(device, detail::generator_state(device));
    detail::set_generator_state(device, values);
  }
}

RandomState::Scope::~Scope() {
  PortableRandom::set_position(portable_before_);
  for (const auto& [device, values] : before_) detail::set_generator_state(device, values);
}

}  // namespace npu_train
