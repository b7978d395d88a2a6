#include "testing.hpp"

#include "npu_train/engine/logger.hpp"

#include <algorithm>
#include <fstream>
#include <memory>
#include <vector>

#include <torch/types.h>

#include "npu_train/core/log.hpp"
#include "npu_train/data/image_codec.hpp"
#include "npu_train/engine/predictor.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/io/mlflow_run.hpp"
#include "npu_train/train/loop.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

/// Records the calls of a logger.
struct Record {
  std::vector<LoggedRun> runs;
  std::vector<LoggedRow> rows;
  std::vector<LoggedEnd> ends;
  bool fails = false;

  /// Returns "phase step" of each row.
  std::vector<std::string> order() const {
    std::vector<std::string> out;
    for (const auto& row : rows) out.push_back(str_cat(row.phase, ' ', row.step));
    return out;
  }
};

Parts parts_with(const std::shared_ptr<Record>& record) {
  struct Recorder final : Logger {
    explicit Recorder(std::shared_ptr<Record> to) : to_(std::move(to)) {}
    std::string what() const override { return "the record"; }
    void begin(const LoggedRun& run) override {
      to_->runs.push_back(run);
      if (to_->fails) throw std::runtime_error("no room");
    }
    void log(const LoggedRow& row) override { to_->rows.push_back(row); }
    void end(LoggedEnd how) override { to_->ends.push_back(how); }
    std::shared_ptr<Record> to_;
  };
  auto parts = builtin_parts();
  parts.loggers.add<NoOptions>("record", "keeps all calls", [record](const NoOptions&) { return std::make_shared<Recorder>(record); });
  return parts;
}

/// Returns a run of two epochs with two steps each.
RunConfig two_epochs(const TempDir& dir, const std::vector<std::string>& loggers) {
  RunConfig config{.device = "cpu", .precision = "32-true"};
  config.model = {.name = "vit_tiny_cifar10", .options = {{"depth", 1}, {"dim", 32}, {"heads", 2}, {"patch_size", 8}}};
  config.data = {.name = "generated", .options = {{"train_size", 16}, {"val_size", 8}, {"batch_size", 8}, {"num_workers", "0"}}};
  config.trainer = {.max_epochs = 2, .log_every_n_steps = 1, .threads = 1};
  config.checkpoint.every_n_train_steps = 1;
  config.checkpoint.save_top_k = -1;
  config.output.dir = dir.path().string();
  config.output.logger.clear();
  for (const auto& name : loggers) config.output.logger.push_back({.name = name});
  return config;
}

std::string content(const fs::path& path) { return read_file(path, 1 << 20); }

struct Stop final : Callback {
  explicit Stop(bool by_error) : by_error_(by_error) {}
  void on_epoch_start(TrainLoop& loop, int64_t) override {
    check(!by_error_, ErrorKind::Usage, "test", "an error of a callback");
    loop.request_stop();
  }
  bool by_error_;
};

}  // namespace

TEST_CASE("a logger of a program gets each row, the run and its end") {
  TempDir dir;
  const auto record = std::make_shared<Record>();
  const auto result = Trainer(two_epochs(dir, {"record"}), parts_with(record)).fit();
  REQUIRE(record->runs.size() == 1);
  const auto& run = record->runs[0];
  CHECK(run.dir == result.run_dir);
  CHECK(run.name == "vit_tiny_cifar10_generated");
  CHECK(run.config.find("model")->find("depth")->scalar() == "1");
  CHECK(run.columns.front() == "loss");
  CHECK_FALSE(run.from.has_value());
  CHECK(record->order() == std::vector<std::string>{"train 1", "train 2", "val 2", "epoch 2", "train 3", "train 4", "val 4", "epoch 4"});
  CHECK(record->rows[0].full_name("loss") == "train/loss");
  CHECK(scalar_or(record->rows[3].values, "loss", -1) == result.history[0].train[0].second);
  CHECK((record->ends == std::vector<LoggedEnd>{LoggedEnd::Finished}));
  for (const char* absent : {"metrics.csv", "mlflow.json"}) CHECK_FALSE(fs::exists(fs::path(result.run_dir) / absent));
  for (const auto& file : fs::directory_iterator(result.run_dir)) CHECK_FALSE(file.path().filename().string().starts_with("events."));
  CHECK(load_json(fs::path(result.run_dir) / "history.json").at("epochs", "").items("").size() == 2);
  CHECK_NOTHROW(static_cast<void>(Predictor::from_checkpoint(result.run_dir, "cpu")));  // in a program without that logger
}

TEST_CASE("the end of a run is known: by request, by an error, or with the object of a program that owns its loop") {
  TempDir dir;
  const auto ended = [&](auto&& fn) {
    const auto record = std::make_shared<Record>();
    {
      Trainer trainer(two_epochs(dir, {"record"}), parts_with(record));
      fn(trainer);
    }
    REQUIRE(record->ends.size() == 1);
    return record->ends[0];
  };
  CHECK(ended([](Trainer& trainer) {
          trainer.add_callback(std::make_shared<Stop>(false));
          CHECK(trainer.fit().reason == StopReason::Requested);
        }) == LoggedEnd::Stopped);
  CHECK(ended([](Trainer& trainer) {
          trainer.add_callback(std::make_shared<Stop>(true));
          CHECK(has(error_of([&] { trainer.fit(); }).what(), "an error of a callback"));
        }) == LoggedEnd::Failed);
  CHECK(ended([](Trainer& trainer) {
          trainer.save_checkpoint();  // the run gets its folder
          trainer.train_epoch();
        }) == LoggedEnd::Finished);
}

TEST_CASE("a resumed run tells its loggers from which step on values follow again") {
  for (const bool with_csv : {true, false}) {
    CAPTURE(with_csv);
    TempDir dir;
    auto config = two_epochs(dir, with_csv ? std::vector<std::string>{"record", "csv"} : std::vector<std::string>{"record"});
    const auto run_dir = fs::path(Trainer(config, parts_with(std::make_shared<Record>())).fit().run_dir);
    const auto record = std::make_shared<Record>();
    Trainer again(config, parts_with(record));
    again.resume((run_dir / "checkpoints/epoch=001-step=3").string());
    CHECK(again.fit().run_dir == run_dir);
    REQUIRE(record->runs.size() == 1);
    // Without metrics.csv, the values that step 3 logged are not known, so they stay.
    CHECK(record->runs[0].from == (with_csv ? 3 : 4));
    REQUIRE(record->runs[0].kept.size() == (with_csv ? 1 : 0));
    for (const auto& row : record->runs[0].kept) CHECK((row.phase == "train" && row.step == 3 && row.epoch == 1));
    CHECK(record->order() == std::vector<std::string>{"train 4", "val 4", "epoch 4"});
  }
}

TEST_CASE("a logger that cannot begin costs a warning, and no other logger anything") {
  TempDir dir;
  std::string said;
  const ScopedLogSink sink([&](LogLevel level, std::string_view text) {
    if (level == LogLevel::Warning) said += std::string(text) + "\n";
  });
  const auto record = std::make_shared<Record>();
  record->fails = true;
  std::ofstream(dir / "file") << "";
  auto config = two_epochs(dir, {"record", "mlflow", "csv"});
  config.output.logger[1].options.set("dir", (dir / "file/mlruns").string());
  const auto result = Trainer(config, parts_with(record)).fit();
  CHECK(result.global_step == 4);
  CHECK(record->rows.empty());
  CHECK_MESSAGE(has(said, "no room; the training continues, and the record may be incomplete from here on"), said);
  CHECK_MESSAGE(has(said, "the training continues, and the run of MLflow may be incomplete from here on"), said);
  CHECK(has(content(fs::path(result.run_dir) / "metrics.csv"), "\n1,4,epoch,"));
}

namespace {

/// Logs one thing of each kind after the first step.
struct Items final : Callback {
  void on_step_end(TrainLoop& loop, const StepReport& report) override {
    if (report.global_step != 1) return;
    loop.log_text("notes", "# A title", 1);
    loop.log_image("pixels", torch::tensor({0.0, 0.5, 2.0, kNaN}).view({2, 2}), 1);
    loop.log_histogram("values", torch::tensor({-1.0, 0.0, 3.0, 3.0, kInf}), 1);
  }
};

/// Logs names that the file system of MLflow's store does not accept as they are.
struct OddNames final : Callback {
  void on_step_end(TrainLoop& loop, const StepReport& report) override {
    if (report.global_step != 1) return;
    for (const auto& [name, value] : Scalars{{"acc", 1}, {"acc/top5", 2}, {"zz", 3}}) loop.log(name, value, 1);
    loop.log_text("../up", "outside?", 1);
  }
};

/// Returns the folder of the run in the store of MLflow.
fs::path folder_in(const fs::path& store, const fs::path& run_dir) {
  const auto ids = load_json(run_dir / "mlflow.json");
  return store / ids.at("experiment_id", "").text("") / ids.at("run_id", "").text("");
}

}  // namespace

TEST_CASE("texts, images and histograms go to the loggers that keep them, and a warning is given if none does") {
  TempDir dir;
  std::string said;
  const ScopedLogSink sink([&](LogLevel level, std::string_view text) {
    if (level == LogLevel::Warning) said += std::string(text) + "\n";
  });
  auto config = two_epochs(dir, {"tensorboard", "mlflow"});
  config.output.logger[1].options.set("dir", (dir / "mlruns").string());
  Trainer trainer(config);
  trainer.add_callback(std::make_shared<Items>());
  const fs::path folder = trainer.fit().run_dir;
  CHECK_MESSAGE(!has(said, "are not kept"), said);
  std::string events;
  for (const auto& file : fs::directory_iterator(folder / "items")) events += content(file.path());
  for (const char* tag : {"notes", "# A title", "pixels", "\x89PNG", "values", "values/not_finite"}) CHECK_MESSAGE(has(events, tag), tag);
  const auto artifacts = folder_in(dir / "mlruns", folder) / "artifacts";
  CHECK(content(artifacts / "texts/notes/step_000001.md") == "# A title");
  const auto png = content(artifacts / "images/pixels/step_000001.png");
  const auto image = decode_image({png.begin(), png.end()}, "png");
  REQUIRE((image.height() == 2 && image.width() == 2));
  CHECK((image.at(0, 0, 0) == 0 && image.at(0, 0, 1) == 128 && image.at(0, 1, 0) == 255 && image.at(0, 1, 1) == 0));

  config.output.logger = {{.name = "csv"}};
  Trainer without(config);
  without.add_callback(std::make_shared<Items>());
  without.fit();
  for (const char* items : {"texts", "images", "histograms"}) CHECK_MESSAGE(has(said, str_cat("[log] ", items, " are not kept")), said);
}

TEST_CASE("a value that MLflow cannot keep costs a warning and no other value, and no name leads out of the run") {
  TempDir dir;
  std::string said;
  const ScopedLogSink sink([&](LogLevel level, std::string_view text) {
    if (level == LogLevel::Warning) said += std::string(text) + "\n";
  });
  auto config = two_epochs(dir, {"mlflow"});
  config.output.logger[0].options.set("dir", (dir / "mlruns").string());
  Trainer trainer(config);
  trainer.add_callback(std::make_shared<OddNames>());
  const auto run = folder_in(dir / "mlruns", trainer.fit().run_dir);
  CHECK(content(run / "metrics/acc").ends_with(" 1 1\n"));
  CHECK(content(run / "metrics/zz").ends_with(" 3 1\n"));
  CHECK_MESSAGE(has(said, "metrics/acc"), said);
  CHECK(content(run / "artifacts/texts" / mlflow_name("../up") / "step_000001.md") == "outside?");
  CHECK(has(content(run / "meta.yaml"), "\nstatus: 3\n"));

  config.output.logger[0].options.set("dir", "http://127.0.0.1:5000");
  CHECK(has(error_of([&] { Trainer(config).fit(); }).what(), "an address; allowed: a folder"));
}

TEST_CASE("a run of MLflow that cannot begin has failed") {
  TempDir dir;
  auto config = two_epochs(dir, {"mlflow"});
  config.output.logger[0].options.set("dir", (dir / "mlruns").string());
  Trainer trainer(config);
  trainer.save_checkpoint();                                          // the run gets its folder
  fs::create_directory(fs::path(trainer.run_dir()) / "mlflow.json");  // a folder where a file must be written
  CHECK(trainer.fit().global_step == 4);
  std::string runs;
  for (const auto& file : fs::recursive_directory_iterator(dir / "mlruns"))
    if (const auto text = file.path().filename() == "meta.yaml" ? content(file.path()) : ""; has(text, "run_id:")) runs += text;
  CHECK_MESSAGE(has(runs, "\nstatus: 4\n"), runs);
  CHECK_FALSE(has(runs, "\nstatus: 1\n"));
}

TEST_CASE("a run that was moved continues its run of MLflow, a copy has its own") {
  TempDir dir;
  const auto store = dir / "mlruns";
  auto config = two_epochs(dir, {"csv", "mlflow"});
  config.output.logger[1].options.set("dir", store.string());
  const auto resumed = [&](const fs::path& run_dir) {
    Trainer trainer(config);
    trainer.resume((run_dir / "checkpoints/epoch=001-step=3").string());
    CHECK(trainer.fit().run_dir == run_dir);
    return folder_in(store, run_dir);
  };
  const fs::path original = Trainer(config).fit().run_dir;
  const auto moved = original.parent_path() / "version_7", copy = original.parent_path() / "version_8";
  const auto run = folder_in(store, original);
  fs::rename(original, moved);
  CHECK(resumed(moved) == run);
  const auto values = content(run / "metrics/train/loss");
  CHECK(std::count(values.begin(), values.end(), '\n') == 4);
  fs::copy(moved, copy, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  CHECK(resumed(copy) != run);
  CHECK(content(run / "metrics/train/loss") == values);
}

TEST_CASE("images and values that cannot be logged are errors by name") {
  TempDir dir;
  std::string said;
  const ScopedLogSink sink([&](LogLevel, std::string_view text) { said += text; });
  Trainer trainer(two_epochs(dir, {"tensorboard"}));
  for (const auto& image : {torch::zeros({2, 4, 4}), torch::zeros({3, 0, 4}), torch::zeros({4}), torch::zeros({3, 4, 4}, torch::kLong)}) {
    const auto e = error_of([&] { trainer.log_image("bad", image); });
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK_MESSAGE(has(e.what(), "'bad' is"), e.what());
  }
  CHECK(has(error_of([&] { trainer.log_image("bad", torch::Tensor()); }).what(), "'bad' is an undefined tensor"));
  for (const auto& values : {torch::empty({0}), torch::Tensor()})
    CHECK(has(error_of([&] { trainer.log_histogram("none", values); }).what(), "'none' has no elements"));
  CHECK(error_of([&] { trainer.log_text("val/x", "text"); }).kind() == ErrorKind::Usage);
  CHECK_FALSE(has(said, "before the run has its folder"));
  trainer.log_text("early/text", "text");
  trainer.log_image("early/image", torch::zeros({4, 4}));
  trainer.log_histogram("early/values", torch::zeros({3}));
  for (const char* name : {"text", "image", "values"})
    CHECK_MESSAGE(has(said, str_cat("'early/", name, "' was logged before the run has its folder")), said);
}
