#include "train/update.hpp"

#include "npu_train/base/squared_norm.hpp"
#include "npu_train/optim/clip.hpp"

namespace npu_train::detail {

at::Tensor Update::agree_and_clip(StepAgreement& all) {
  const auto& own = optimizer_.parameters();
  auto squares = clip_value_ > 0 && clip_by_norm_ ? squared_grad_norm(own) : SquaredNorm{};
  all.found_inf = decision_.found_inf;
  all.squares = squares.parts;
  strategy_.agree(all);
  decision_.found_inf = all.found_inf;
  squares.parts = all.squares;
  const auto norm = squares.parts.defined() ? norm_of(squares) : at::Tensor();
  if (norm.defined())
    clip_grads_with_norm_(own, clip_value_, norm);
  else if (clip_value_ > 0)
    clip_grad_value_(own, clip_value_);
  return norm;
}

void Update::step() {
  decision_ = precision_.optimizer_decision(decision_);
  optimizer_.step(decision_);
  strategy_.finish_step();  // waits until all masters have arrived, before they are rounded
  precision_.after_step(decision_);
}

}  // namespace npu_train::detail
