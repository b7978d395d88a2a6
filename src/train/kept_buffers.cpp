#include "train/kept_buffers.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "npu_train/core/log.hpp"
#include "npu_train/nn/norm_watch.hpp"

namespace npu_train::detail {
namespace {

// Running means that are not among the task's buffers, with their previous values.
class UnlistedMeans final : private NormWatch {
 public:
  explicit UnlistedMeans(Task& task) : buffers_(task.buffers()) {}

  // Returns how many means have changed. Means of frozen layers do not change, and may belong to a network outside the task.
  int64_t moved() const {
    return std::count_if(means_.begin(), means_.end(), [](const auto& m) { return !m.first.equal(m.second); });
  }
  bool none_listed() const { return buffers_.empty(); }

 private:
  void on_norm(const Statistics& s) override {
    const auto shares = [&](const at::Tensor& t) { return t.is_alias_of(s.mean); };
    if (!s.mean.defined() || std::any_of(buffers_.begin(), buffers_.end(), [&](const auto& b) { return shares(b.second); }) ||
        std::any_of(means_.begin(), means_.end(), [&](const auto& m) { return shares(m.first); }))
      return;
    means_.emplace_back(s.mean, s.mean.detach().clone());
  }

  std::vector<NamedTensor> buffers_;
  std::vector<std::pair<at::Tensor, at::Tensor>> means_;
};

}  // namespace

void warn_of_missing_buffers(Task& task, const std::function<void()>& forward) {
  const UnlistedMeans seen(task);
  forward();
  const auto layers = seen.moved();
  if (layers == 0) return;
  log_warning("[Task::buffers] ", seen.none_listed() ? "the task returns no buffers" : "buffers are missing", ", but ", layers,
              layers == 1 ? " normalisation layer has" : " normalisation layers have",
              " running statistics: checkpoints do not contain them, and a skipped step does not restore them; hint: return the module's "
              "buffers (npu_train::task(model, loss) and npu_train::ModelTask do)");
}

void KeptBuffers::keep() {
  const at::NoGradGuard no_grad;
  if (buffers_.empty()) buffers_ = task_.buffers();
  if (kept_.size() != buffers_.size()) kept_.clear();
  if (kept_.empty())
    for (const auto& [name, buffer] : buffers_) kept_.push_back(at::empty_like(buffer));
  for (size_t i = 0; i < kept_.size(); ++i) kept_[i].copy_(buffers_[i].second);
}

void KeptBuffers::restore() const {
  // Writes through .data(), because autograd may still check the version counter of a buffer that the forward saved.
  for (size_t i = 0; i < kept_.size(); ++i) buffers_[i].second.data().copy_(kept_[i]);
}

}  // namespace npu_train::detail
