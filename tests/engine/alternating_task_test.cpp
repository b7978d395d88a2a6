// A task with several optimizers in a Trainer: their configuration, their rates, and checkpoints from which a run continues.
#include "testing.hpp"

#include <cmath>

#include "npu_train/base/state.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/train/checkpoint.hpp"
#include "npu_train/train/classifier.hpp"
#include "npu_train/train/loop.hpp"
#include "train/gan.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

RunConfig gan_run(const std::filesystem::path& dir) {
  return {.device = "cpu",
          .precision = "32-true",
          .data = {.options = {{"batch_size", 8}, {"num_workers", "0"}}},
          .optimizer = {"sgd", {{"lr", 0.05}}},
          .optimizers = {{"generator", part("adam", {{"lr", 0.01}})}},
          .trainer = {.max_epochs = 3, .num_sanity_val_steps = 0, .log_every_n_steps = 1, .threads = 1},
          .output = {.dir = dir.string(), .name = "gan", .logger = {part("csv")}}};
}

std::shared_ptr<TensorDataset> gan_data(uint64_t seed) {
  torch::manual_seed(seed);
  return std::make_shared<TensorDataset>(torch::randn({40, 6}) + 1, torch::randn({40, 4}));
}

RunResult fit_gan(const RunConfig& config, const std::string& resume = "") {
  Trainer trainer(config);
  trainer.setup(std::make_shared<GanTask>(2), gan_data(3), gan_data(4));
  if (!resume.empty()) REQUIRE_FALSE(trainer.resume(resume).empty());
  return trainer.fit();
}

}  // namespace

TEST_CASE("a Trainer gives each optimizer of a task its own options, reports each loss, and resumes to the bit") {
  TempDir whole_dir, dir;
  const auto whole = fit_gan(gan_run(whole_dir.path()));
  CHECK(whole.global_step == 15);
  for (const auto& report : {whole.history.back().train, whole.history.back().val})
    for (const char* loss : {"loss", "discriminator_loss", "generator_loss"}) {
      CAPTURE(loss);
      CHECK(std::isfinite(scalar_or(report, loss, kNaN)));
    }
  const auto rows = read_file(std::filesystem::path(whole.run_dir) / "metrics.csv", 1 << 20);  // the generator steps in every second window
  CHECK(has(rows, "generator_loss"));
  CHECK_FALSE(has(rows, "nan"));
  const auto state = load_checkpoint(whole.last_checkpoint);
  CHECK(state.at("optimizer.generator").tensors.count("exp_avg/generator.0.weight") == 1);
  CHECK(state.at("optimizer.discriminator").tensors.count("exp_avg/discriminator.0.weight") == 0);  // uses sgd, from `optimizer`

  auto config = gan_run(dir.path());
  config.trainer.max_steps = 7;
  fit_gan(config);
  const auto rest = fit_gan(gan_run(dir.path()), "last");
  CHECK(rest.global_step == 15);
  const auto resumed = load_checkpoint(rest.last_checkpoint);
  for (const char* part : {"model", "optimizer.generator", "optimizer.discriminator", "scaler.generator"}) {
    CAPTURE(part);
    CHECK(digest(resumed.at(part)) == digest(state.at(part)));
  }
}

TEST_CASE("optimizers are checked as optimizer is, and belong to a task that has them") {
  const auto bound = [](const std::string& yaml) { return bind_config(parse_yaml(yaml, "a.yaml")); };
  const auto config = bound("optimizers: {generator: {name: adam, lr: 0.01}, discriminator: sgd}");
  REQUIRE(config.optimizers.size() == 2);
  CHECK(config.optimizers[0].first == "generator");
  CHECK(config.optimizers[1].second.name == "sgd");
  CHECK(bound(to_yaml(resolved(config))).optimizers.size() == 2);
  CHECK_FALSE(has(to_yaml(resolved(RunConfig{})), "optimizers"));  // the section is left out if it is empty
  const auto refused = [&](const std::string& yaml) { return std::string(error_of([&] { bound(yaml); }).what()); };
  CHECK(has(refused("optimizers: {generator: {name: adm}}"), "did you mean 'adam'?"));
  CHECK(has(refused("optimizers: {generator: {name: adam, lr: -1}}"), "optimizers.generator.lr"));
  CHECK(has(refused("optimizers: {generator: {lr: 0.1}}"), "optimizers.generator: the key 'name' is missing"));
  CHECK(has(refused("optimizers: [adam]"), "is not a map of parts by name"));

  TempDir dir;
  auto unknown = gan_run(dir.path());
  unknown.optimizers = {{"critic", part("adam")}};
  CHECK(has(error_of([&] { fit_gan(unknown); }).what(), "optimizers.critic"));
  auto averaged = gan_run(dir.path());
  averaged.average.enabled = true;
  CHECK(has(error_of([&] { fit_gan(averaged); }).what(), "'' is not an optimizer of this task"));
  averaged.average.of = "generator";
  const auto averages = load_checkpoint(fit_gan(averaged).last_checkpoint).at("ema");
  CHECK(averages.tensors.count("average/generator.0.weight") == 1);
  CHECK(averages.tensors.count("average/discriminator.0.weight") == 0);
  averaged.average = {.enabled = true, .kind = "swa", .start = 1, .lr = 0.002, .anneal_epochs = 0, .of = "generator"};
  // average.lr, 0.002, replaces the rate of the averaged optimizer, 0.01. The other rate changes by the same factor.
  Trainer rates(averaged);
  rates.setup(std::make_shared<GanTask>(2), gan_data(3), gan_data(4));
  rates.fit();
  CHECK(rates.loop().parts().optimizers.at(1).optimizer->lr() == doctest::Approx(0.002));
  CHECK(rates.loop().parts().optimizer->lr() == doctest::Approx(0.05 * 0.2));
  Trainer one(gan_run(dir.path()));
  const auto of_one = error_of([&] { one.fit(classifier(torch::nn::Linear(6, 4)), gan_data(3)); });
  CHECK(has(of_one.what(), "this task has one optimizer"));
}
