#include "npu_train/device/random.hpp"

#include "npu_train/device/backend.hpp"

namespace npu_train {

void seed_everything(uint64_t seed) {
  for (const auto* backend : all_backends())
    if (backend->is_available()) backend->seed(seed);
}

State rng_state() {
  State out;
  for (const auto* backend : all_backends())
    if (backend->is_available()) out.tensors.merge(backend->rng_state().tensors);
  return out;
}

void set_rng_state(const State& state) {
  const auto before = rng_state();
  try {
    for (const auto* backend : all_backends())
      if (backend->is_available()) backend->set_rng_state(state);
  } catch (...) {
    for (const auto* backend : all_backends())
      if (backend->is_available()) backend->set_rng_state(before);
    throw;
  }
}

}  // namespace npu_train
