// train_app with a section `a_fault`: at one step, one rank behaves differently from the others. The section's name sorts before `dump`, so
// that the fault is planted before the dump sees it.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/step_observer.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/engine/run_observer.hpp"
#include "npu_train/optim/optimizer.hpp"
#include "npu_train/tools/commands/main.hpp"
#include "npu_train/train/loop.hpp"
#include "npu_train/train/task.hpp"

namespace {

using namespace npu_train;

struct FaultOptions {
  std::string kind = "none";
  int64_t step = 0;
  int64_t rank = 1;
  int64_t parameter = 0;
  int64_t bit = 0;  // bit of the first element
  static const ConfigTable<FaultOptions>& config_table() {
    using T = FaultOptions;
    static const auto table = ConfigTable<T>("a_fault")
                                  .field("kind", &T::kind, "the fault")
                                  .field("step", &T::step, "when; data: from then on", at_least(0))
                                  .field("rank", &T::rank, "where", at_least(0))
                                  .field("parameter", &T::parameter, "its number", at_least(0))
                                  .field("bit", &T::bit, "of the first element", between(0, 31));
    return table;
  }
};

void flip(const at::Tensor& tensor, int64_t bit) {
  uint32_t bits = 0;
  std::memcpy(&bits, tensor.data_ptr(), sizeof bits);
  bits ^= uint32_t{1} << bit;
  std::memcpy(tensor.data_ptr(), &bits, sizeof bits);
}

class Fault final : public RunObserver, public StepObserver {
 public:
  explicit Fault(FaultOptions options) : options_(std::move(options)) {}

  void on_start(const RunView& run, const std::string& /*run_dir*/) override {
    run_.emplace(run);
    run.loop->observers().add(this);
  }

  void on_batch(const Batch& batch, int64_t attempt, int /*micro_batch*/) override {
    const at::NoGradGuard no_grad;
    if (attempt >= options_.step && options_.kind == "same samples") run_->strategy->broadcast({batch.input()});
    if (attempt >= options_.step && options_.kind == "same ids")
      for (size_t i = 0; i < batch.ids.size(); ++i) const_cast<Batch&>(batch).ids[i] = static_cast<int64_t>(i);
    if (here(attempt, /*from=*/true) && options_.kind == "normalisation") batch.input().mul_(2).add_(1);
    if (here(attempt, /*from=*/false) && options_.kind == "weights before") flip(parameter(), options_.bit);
  }

  void phase_end(Phase phase, int64_t attempt, int /*micro_batch*/) override {
    const at::NoGradGuard no_grad;
    if (!here(attempt, /*from=*/false)) return;
    const auto& kind = options_.kind;
    if (phase == Phase::Reduce && kind == "gradient") flip(optimized().grad(), options_.bit);
    if (phase == Phase::Reduce && kind == "all gradients")
      for (const auto& g : run_->optimizer->parameters().grads()) g.mul_(0.5);
    if (phase == Phase::Reduce && kind == "native seed") {  // gives this rank the seed of rank 0
      auto generator = at::detail::getDefaultCPUGenerator();
      generator.set_current_seed(static_cast<uint64_t>(run_->config.seed));
    }
    if (phase == Phase::Reduce && kind == "portable seed") {
      auto position = PortableRandom::position();
      ++position.seed;
      PortableRandom::set_position(position);
    }
    if (phase == Phase::Clip && kind == "clip")
      for (const auto& g : run_->optimizer->parameters().grads()) g.mul_(0.5);
    if (phase == Phase::Clip && kind == "lr") run_->optimizer->set_lr(run_->optimizer->lr() * 2);
    if (phase == Phase::Optimizer && kind == "weights after") flip(parameter(), options_.bit);
  }

 private:
  bool here(int64_t attempt, bool from) const {
    return run_->strategy->ranks().rank() == options_.rank && (from ? attempt >= options_.step : attempt == options_.step);
  }
  at::Tensor parameter() const {
    const auto parameters = run_->task->parameters();
    return parameters[static_cast<size_t>(options_.parameter) % parameters.size()].value;
  }
  at::Tensor optimized() const {
    const auto& parameters = run_->optimizer->parameters();
    return parameters[static_cast<size_t>(options_.parameter) % parameters.size()].value;
  }

  FaultOptions options_;
  std::optional<RunView> run_;
};

}  // namespace

int main(int argc, char** argv) {
  auto parts = npu_train::tool_parts();
  parts.observers.add_section<FaultOptions>("a_fault", "a fault of one rank",
                                            [](const FaultOptions& options) { return std::make_unique<Fault>(options); });
  return npu_train::train_main(argc, argv, parts);
}
