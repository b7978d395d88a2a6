// Configurations that a Trainer refuses when it builds a run, and the folder in which a resumed run continues.
#include "testing.hpp"

#include <torch/nn.h>

#include "npu_train/data/documents.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/train/checkpoint_store.hpp"
#include "npu_train/train/classifier.hpp"
#include "npu_train/train/loop.hpp"
#include "wrapped_task.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

RunConfig generated_run(const fs::path& dir, const std::string& name = "") {
  RunConfig c{.device = "cpu", .precision = "32-true"};
  c.model = {.name = "resnet18", .options = {{"stem", "imagenet"}}};
  c.data = {.name = "generated", .options = {{"train_size", 32}, {"val_size", 16}, {"batch_size", 16}, {"num_workers", "0"}}};
  c.trainer = {.max_epochs = 1, .threads = 1};
  c.output = {.dir = dir.string(), .name = name};
  return c;
}

// Counts how often its parameters are requested.
struct Counting final : WrappedTask {
  Counting() : WrappedTask(regressor(torch::nn::Linear(4, 1))) {}
  ParameterSet parameters() override { return ++asked, inner->parameters(); }
  int64_t asked = 0;
};

// Sequences of six tokens: one document, or two.
class Sequences final : public SequenceDataset {
 public:
  explicit Sequences(bool packed) : packed_(packed) {}
  int64_t size() const override { return 4; }
  Sample get(int64_t index) const override {
    Sample out{{{"input", torch::full({6}, index, torch::kLong)}}, index};
    if (packed_) out.fields.emplace_back("position_ids", torch::arange(6, torch::kLong).remainder(3));
    return out;
  }
  int64_t padding() const override { return 0; }
  int64_t longest() const override { return 6; }

 private:
  bool packed_;
};

std::shared_ptr<TensorDataset> numbers() { return std::make_shared<TensorDataset>(torch::randn({40, 4}), torch::randn({40, 1})); }

}  // namespace

TEST_CASE("a checkpoint of another run is only read: a new run begins in the folder that was requested") {
  TempDir dir;
  const auto old = Trainer(generated_run(dir / "old")).fit();
  const auto config_time = fs::last_write_time(fs::path(old.run_dir) / "config.yaml");
  Trainer trainer([&] {
    auto c = generated_run(dir / "new");
    c.trainer.max_epochs = 3;
    return c;
  }());
  trainer.resume(old.last_checkpoint);
  const auto result = trainer.fit();
  CHECK(result.run_dir.starts_with((dir / "new").string()));
  CHECK(result.global_step == 6);
  CHECK(fs::exists(old.last_checkpoint));
  CHECK(fs::last_write_time(fs::path(old.run_dir) / "config.yaml") == config_time);
}

TEST_CASE("last is that of the newest run that has one") {
  TempDir dir;
  const auto first = Trainer(generated_run(dir.path(), "a")).fit();
  fs::create_directories(dir / "a/version_1/checkpoints/.x");  // a run that was killed before its first checkpoint
  auto config = generated_run(dir.path(), "a");
  config.trainer.max_epochs = 2;
  Trainer trainer(config);
  CHECK(fs::equivalent(trainer.resume("last"), first.last_checkpoint));
}

TEST_CASE("a run asks its task for the parameters once: steps, averages, checkpoints and a resumed run share the set") {
  TempDir dir;
  RunConfig config{.device = "cpu", .precision = "bf16-mixed", .output = {.dir = dir.path().string()}};
  config.data.options.set("batch_size", ConfigNode(int64_t{10}));
  config.trainer = {.max_epochs = 1, .gradient_clip_val = 1, .threads = 1};
  config.average.enabled = true;
  const auto task = std::make_shared<Counting>();
  CHECK(Trainer(config).fit(task, numbers(), numbers()).global_step == 4);
  CHECK(task->asked == 1);
  config.trainer.max_epochs = 2;
  Trainer resumed(config);
  resumed.setup(task, numbers(), numbers());
  CHECK_FALSE(resumed.resume("last").empty());
  resumed.loop().refresh_parameters();
  CHECK(resumed.fit().global_step == 8);
  CHECK(task->asked == 2);
  CHECK(resumed.loop().parts().parameters->find("weight") != nullptr);
}

TEST_CASE("a model with fewer classes than the data is refused before training") {
  auto config = generated_run("");
  config.model.options.set("num_classes", ConfigNode(int64_t{7}));
  const auto e = error_of([&] { Trainer(config).setup(); });
  CHECK(e.kind() == ErrorKind::Usage);
  CHECK(has(e.what(), "the model has 7 classes and the data 10"));
}

TEST_CASE("a model with more classes than the data is refused unless this is allowed") {
  auto config = generated_run("");
  config.model.options.set("num_classes", ConfigNode(int64_t{12}));
  const auto e = error_of([&] { Trainer(config).setup(); });
  CHECK(e.kind() == ErrorKind::Usage);
  CHECK(has(e.what(), "the model has 12 classes and the data 10"));
  CHECK(has(e.what(), "model.allow_unused_classes=true"));
  config.model.options.set("allow_unused_classes", ConfigNode(true));
  Trainer allowed(config);
  CHECK(allowed.model().num_classes == 12);
}

TEST_CASE("paths in amp.fp32_modules need a configured model, classes of layers do not") {
  for (const char* precision : {"bf16-mixed", "bf16-true"}) {
    RunConfig config{.device = "cpu", .precision = precision, .output = {.dir = ""}};
    config.amp.fp32_modules = {"head"};
    CHECK(has(error_of([&] { Trainer(config).fit(regressor(torch::nn::Linear(4, 1)), numbers()); }).what(), "Fp32Region"));
    config.amp.fp32_modules = {"LayerNorm"};
    CHECK(Trainer(config).fit(regressor(torch::nn::Linear(4, 1)), numbers()).global_step > 0);
  }
}

TEST_CASE("monitored metrics must exist, and by default they do") {
  RunConfig config{.device = "cpu", .precision = "32-true", .trainer = {.max_epochs = 1}, .output = {.dir = ""}};
  CHECK(Trainer(config).fit(regressor(torch::nn::Linear(4, 1)), numbers(), numbers()).best_score >= 0);
  config.checkpoint.monitor = "val/bleu";
  CHECK(has(error_of([&] { Trainer(config).fit(regressor(torch::nn::Linear(4, 1)), numbers()); }).what(), "val/bleu"));
  config.checkpoint.monitor = "auto";
  config.early_stopping = {.enabled = true, .monitor = "val/loss"};
  CHECK(has(error_of([&] { Trainer(config).fit(regressor(torch::nn::Linear(4, 1)), numbers()); }).what(), "does not validate"));
}

TEST_CASE("a monitor that the task cannot have is refused before data are opened and a folder is made") {
  TempDir dir;
  auto config = generated_run(dir / "out");
  auto parts = builtin_parts();
  int opened = 0;
  parts.datasets.add<NoOptions>("generated", "counts", [&](const NoOptions&) -> DatasetPair {
    ++opened;
    throw Error(ErrorKind::Data, "data", "opened");
  });
  config.data.options = ConfigNode::map();
  const auto fit = [&] { return error_of([&] { Trainer(config, parts).fit(); }); };
  for (const char* monitor : {"val/f1", "acc", "train/mae", "val/"}) {
    config.checkpoint.monitor = monitor;
    CHECK(fit().kind() == ErrorKind::Usage);
    CHECK(has(fit().what(),
              std::string("[checkpoint.monitor] no metric '") + monitor + "'; there are, under train/ and val/: loss, acc1, acc5"));
  }
  config.checkpoint.monitor = "auto";
  config.early_stopping = {.enabled = true, .monitor = "val/accuracy"};
  CHECK(has(fit().what(), "[early_stopping.monitor] no metric 'val/accuracy'"));
  config.early_stopping.monitor = "val/loss";
  config.trainer.check_val_every_n_epoch = 0;
  CHECK(has(fit().what(), "does not validate"));
  CHECK(opened == 0);
  config.trainer.check_val_every_n_epoch = 1;
  for (const char* monitor : {"auto", "val/acc5", "acc1", "train/loss"}) {  // all of them are metrics
    config.checkpoint.monitor = monitor;
    CHECK(fit().kind() == ErrorKind::Data);
  }
  config.task.name = "regressor";
  config.checkpoint.monitor = "val/mae";
  CHECK(fit().kind() == ErrorKind::Data);
  // The metrics of a program's own task are known only after the task was made.
  parts.tasks.add<NoOptions>("mine", "my own", [](const NoOptions&, const Model& model) { return regressor(model); });
  config.task.name = "mine";
  config.checkpoint.monitor = "val/f1";
  CHECK(fit().kind() == ErrorKind::Data);
  CHECK(opened == 6);
  CHECK_FALSE(fs::exists(dir / "out"));
}

TEST_CASE("samples of several documents are refused for a model that does not keep them apart, also those of the validation") {
  RunConfig config{.device = "cpu", .precision = "32-true", .trainer = {.max_epochs = 1, .threads = 1}, .output = {.dir = ""}};
  config.model = {.name = "bert_tiny"};
  config.data = {.name = "own"};
  config.task.name = "language_model";
  for (const bool train : {false, true}) {
    CAPTURE(train);
    auto parts = builtin_parts();
    parts.datasets.add<NoOptions>("own", "sequences", [train](const NoOptions&) -> DatasetPair {
      DatasetPair out;
      out.train = std::make_shared<Sequences>(train);
      out.val = std::make_shared<Sequences>(!train);
      out.options.batch_size = 2;
      return out;
    });
    const auto error = error_of([&] { Trainer(config, parts).fit(); });
    CHECK(error.kind() == ErrorKind::Usage);
    CHECK_MESSAGE(has(error.what(), "does not keep the documents of a sample apart"), error.what());
  }
}

TEST_CASE("the last weights have their score, also when their checkpoint came before the validation") {
  TempDir dir;
  auto config = generated_run(dir.path());
  config.checkpoint.every_n_epochs = 0;
  config.checkpoint.every_n_train_steps = 2;  // an epoch has two windows
  const auto result = Trainer(config).fit();
  CHECK(result.best_checkpoint == result.last_checkpoint);
  CHECK(read_checkpoint_meta(result.last_checkpoint).score == result.best_score);
}
