#include "npu_train/engine/make_model.hpp"

#include <mutex>

#include <ATen/CPUGeneratorImpl.h>

#include "npu_train/nn/own_generator.hpp"

namespace npu_train {

Model make_model(const PartConfig& part, const Parts& parts, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  auto model = [&] {
    const OwnGenerator own(generator);
    return parts.models.make(part, "model");
  }();
  auto shared = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(shared.mutex());
  shared.set_state(generator.get_state());
  return model;
}

}  // namespace npu_train
