#include "npu_train/kernels/running_updates.hpp"

namespace npu_train::detail {
namespace {

thread_local RunningUpdates* current_updates = nullptr;

}  // namespace

void move_running(const at::Tensor& running, double keep, const std::vector<double>& added) {
  float* to = running.data_ptr<float>();
  for (size_t c = 0; c < added.size(); ++c) to[c] = static_cast<float>(keep * to[c] + added[c]);
  running.unsafeGetTensorImpl()->bump_version();
}

RunningUpdates::RunningUpdates() : outer_(current_updates) { current_updates = this; }
RunningUpdates::~RunningUpdates() { current_updates = outer_; }
RunningUpdates* RunningUpdates::current() { return current_updates; }

}  // namespace npu_train::detail
