#include "testing.hpp"

#include "npu_train/core/log.hpp"
#include "npu_train/nn/batch_norm_act.hpp"
#include "train/kept_buffers.hpp"
#include "train/toy.hpp"
#include "wrapped_task.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// A task that returns `listed` buffers of the toy network.
class Listing final : public WrappedTask {
 public:
  Listing(Toy& toy, std::vector<NamedTensor> listed) : WrappedTask(toy.task), listed_(std::move(listed)) {}
  std::vector<NamedTensor> buffers() override { return listed_; }

 private:
  std::vector<NamedTensor> listed_;
};

template <class Fn>
std::vector<std::string> warnings_of(Fn&& fn) {
  std::vector<std::string> out;
  const ScopedLogSink sink([&](LogLevel level, std::string_view text) {
    if (level == LogLevel::Warning && has(std::string(text), "[Task::buffers]")) out.emplace_back(text);
  });
  fn();
  return out;
}

std::vector<std::string> warnings_of_training(Toy& toy, std::vector<NamedTensor> listed) {
  toy.task = std::make_shared<Listing>(toy, std::move(listed));
  return warnings_of([&] { toy.loop({.max_epochs = 2})->fit(); });
}

}  // namespace

TEST_CASE("a task with BatchNorm and without buffers is named once") {
  Toy toy;
  const auto warnings = warnings_of_training(toy, {});
  REQUIRE(warnings.size() == 1);
  CHECK(has(warnings[0], "the task returns no buffers, but 1 normalisation layer has running statistics"));
}

TEST_CASE("a task that returns its buffers, also through a view, gets no warning") {
  Toy all, view;
  CHECK(warnings_of_training(all, all.task->buffers()).empty());
  const auto mean = view.net->norm->running_mean;
  CHECK(warnings_of_training(view, {{"norm.running_mean", mean.view_as(mean)}, {"norm.running_var", view.net->norm->running_var}}).empty());
}

TEST_CASE("a layer that is missing among the buffers is counted") {
  Toy toy;
  const auto warnings = warnings_of_training(toy, {{"other", torch::zeros({3})}});
  REQUIRE(warnings.size() == 1);
  CHECK(has(warnings[0], "buffers are missing, but 1 normalisation layer has"));
}

TEST_CASE("statistics that stay as they are need no buffer; those of npu_train's own kernel do") {
  Toy toy;
  Listing task(toy, {});
  const auto x = torch::randn({8, 4, 5, 5});
  const auto mean = torch::zeros({4}), var = torch::ones({4});
  const auto warnings = [&](bool training) {
    return warnings_of([&] {
      npu_train::detail::warn_of_missing_buffers(task, [&] {
        const torch::NoGradGuard no_grad;
        batch_norm_act(x, {torch::ones({4}), torch::zeros({4}), mean, var, training});
        torch::batch_norm(x, {}, {}, mean, var, training, 0.1, 1e-5, false);
      });
    });
  };
  CHECK(warnings(false).empty());
  const auto moved = warnings(true);
  REQUIRE(moved.size() == 1);
  CHECK(has(moved[0], "1 normalisation layer has"));  // both norms have the same tensors
}
