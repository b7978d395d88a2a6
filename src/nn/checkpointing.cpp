#include "npu_train/nn/checkpointing.hpp"

#include <ATen/core/grad_mode.h>

#include <memory>
#include <mutex>
#include <utility>

#include "nn/unmoved.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/nn/saved_tensors.hpp"
#include "npu_train/nn/sync_batch_norm.hpp"
#include "npu_train/precision/autocast.hpp"

namespace npu_train {
namespace {

using Tensors = std::vector<at::Tensor>;
using Fn = std::function<Tensors(const Tensors&)>;

// One call of checkpoint(). It lives as long as autograd may need a tensor that its forward saved.
class Piece : public std::enable_shared_from_this<Piece> {
 public:
  Piece(Fn fn, const Tensors& inputs, CheckpointingOptions options) : fn_(std::move(fn)), options_(std::move(options)) {
    std::vector<c10::Device> devices;
    for (const auto& t : inputs) {
      inputs_.push_back({t.defined() ? SavedTensorHooks::save(t) : [t] { return t; }, t.defined() && t.requires_grad()});
      if (t.defined()) devices.push_back(t.device());
    }
    random_ = RandomState(devices);
  }

  Tensors forward(const Tensors& inputs) {
    const SavedTensorHooks hooks([self = shared_from_this()](const at::Tensor& t, bool) {
      self->forms_.push_back({t.sizes().vec(), t.scalar_type()});
      return [self, index = self->forms_.size() - 1] { return self->take(index); };
    });
    return fn_(inputs);
  }

 private:
  struct Input {
    SavedTensorHooks::Unpack unpack;
    bool requires_grad;
  };
  struct Form {
    std::vector<int64_t> sizes;
    at::ScalarType dtype;
    bool operator==(const Form&) const = default;
  };

  at::Tensor take(size_t index) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    if (values_.empty() || !values_[index].defined()) recompute();
    return std::exchange(values_[index], at::Tensor());
  }

  void recompute() {
    Tensors inputs, values;
    for (const auto& [unpack, requires_grad] : inputs_) {
      const at::Tensor t = unpack();
      inputs.push_back(t.defined() ? t.detach().requires_grad_(requires_grad) : t);
    }
    {
      const at::AutoGradMode recording(true);
      const AutocastState::Scope autocast(autocast_);
      const SyncBatchNorm::State::Scope synced(synced_);
      const RandomState::Scope random(random_);
      const detail::Unmoved buffers(options_.buffers);
      const SavedTensorHooks hooks([&](const at::Tensor& t, bool result) -> SavedTensorHooks::Unpack {
        const size_t index = values.size();
        if (index == forms_.size()) return [t] { return t; };  // the function has caught the EarlyEnd below
        check(Form{t.sizes().vec(), t.scalar_type()} == forms_[index], ErrorKind::Usage, "checkpoint", "the function saved ", t.sizes(),
              " of ", t.scalar_type(), " for the backward pass where its first call saved ", forms_[index].sizes, " of ",
              forms_[index].dtype, "; it must compute the same each time");
        values.push_back(t);
        // Does not end early if an autograd::Function saves a result, because the Function breaks its reference cycle only after all its
        // tensors are saved.
        if (values.size() == forms_.size() && !result) throw EarlyEnd{};
        return [t] { return t; };
      });
      try {
        fn_(inputs);
      } catch (const EarlyEnd&) {
      }
    }
    check(values.size() == forms_.size(), ErrorKind::Usage, "checkpoint", "the function saved ", values.size(),
          " tensors for the backward pass, its first call saved ", forms_.size(), "; it must compute the same each time");
    values_ = std::move(values);
  }

  Fn fn_;
  CheckpointingOptions options_;
  std::vector<Input> inputs_;
  AutocastState autocast_;
  SyncBatchNorm::State synced_;
  RandomState random_;
  std::vector<Form> forms_;  // forms of the tensors that the forward saved
  Tensors values_;           // recomputed tensors, each kept until it is taken
  std::recursive_mutex mutex_;
};

}  // namespace

Tensors checkpoint(const Fn& fn, const Tensors& inputs, const CheckpointingOptions& options) {
  if (!at::GradMode::is_enabled()) return fn(inputs);
  return std::make_shared<Piece>(fn, inputs, options)->forward(inputs);
}

at::Tensor checkpoint(const std::function<at::Tensor(const at::Tensor&)>& fn, const at::Tensor& input,
                      const CheckpointingOptions& options) {
  return checkpoint([fn](const Tensors& in) -> Tensors { return {fn(in[0])}; }, Tensors{input}, options)[0];
}

}  // namespace npu_train
