#include "testing.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>

#include "npu_train/core/error.hpp"
#include "npu_train/models/resnet.hpp"
#include "npu_train/tools/validate/verify_determinism.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;

namespace {

RunConfig small() {
  RunConfig c{.device = "cpu", .precision = "32-true"};
  c.model = {.name = "resnet18", .options = {{"stem", "imagenet"}}};
  c.data = {.name = "generated", .options = {{"train_size", 64}, {"val_size", 16}, {"batch_size", 8}, {"num_workers", "0"}}};
  c.optimizer.options = {{"lr", 0.05}};
  c.trainer = {.max_epochs = 2, .threads = 1};
  return c;
}

// Returns the built-in parts with a model whose numbers no seed repeats.
Parts with_noise() {
  auto parts = builtin_parts();
  parts.models.add<ResNetOptions>("noisy", "another result at each call", [](const ResNetOptions& options) {
    auto model = resnet(18, options);
    model.forward = [inner = model.forward](const at::Tensor& x) {
      static std::atomic<int> calls{0};
      return inner(x + 1e-3 * ++calls);
    };
    model.blocks.clear();
    return model;
  });
  return parts;
}

}  // namespace

TEST_CASE("the built-in parts repeat, with any number of workers") {
  const auto report = verify_determinism(small(), builtin_parts(), {.steps = 2});
  CHECK(report.passed);
  CHECK(has(report.str(), "determinism verified"));
  CHECK(report.digest.size() == 16);
}

TEST_CASE("a model that does not repeat is found, by part") {
  auto config = small();
  config.model.name = "noisy";
  const auto report = verify_determinism(config, with_noise(), {.steps = 2});
  CHECK_FALSE(report.passed);
  CHECK(has(report.str(), "determinism FAILED"));
  CHECK(std::find(report.repeat.begin(), report.repeat.end(), "model") != report.repeat.end());
}

TEST_CASE("a run that is too short, and impossible options") {
  auto config = small();
  config.trainer.max_epochs = 1;
  CHECK(has(error_of([&] { verify_determinism(config, builtin_parts(), {.steps = 9}); }).what(), "the run ends after 8 steps"));
  CHECK((error_of([&] { verify_determinism(config, builtin_parts(), {.steps = 0}); }).kind() == ErrorKind::Usage));
}
