#include "testing.hpp"

#include "npu_train/engine/run_files.hpp"

#include <fstream>
#include <sstream>

#include "npu_train/engine/trainer.hpp"
#include "npu_train/train/checkpoint.hpp"
#include "npu_train/train/loop.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

TEST_CASE("run folders are numbered, and gaps or foreign names do not disturb") {
  TempDir dir;
  const auto base = dir.path().string();
  CHECK(fs::path(make_run_dir(base, "a")).filename() == "version_0");
  CHECK(fs::path(make_run_dir(base, "a")).filename() == "version_1");
  fs::create_directory(dir / "a/version_12");
  fs::create_directory(dir / "a/version_x");
  fs::create_directory(dir / "a/version_");
  CHECK(fs::path(make_run_dir(base, "a")).filename() == "version_13");
  CHECK(run_dirs(base, "a").empty());
  fs::create_directories(dir / "a/version_1/checkpoints/one");
  REQUIRE(run_dirs(base, "a").size() == 1);
  CHECK(fs::path(run_dirs(base, "a")[0]).filename() == "version_1");
  CHECK(run_dirs(base, "none").empty());
  CHECK(error_of([] { make_run_dir("/proc/none", "a"); }).kind() == ErrorKind::Checkpoint);
}

namespace {

/// The cells of a column in the rows of `phase`.
std::vector<double> column_of(const fs::path& csv, const std::string& name, const std::string& phase) {
  std::ifstream in(csv);
  std::vector<std::string> header;
  std::vector<double> out;
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> cells;
    std::istringstream parts(line);
    for (std::string cell; std::getline(parts, cell, ',');) cells.push_back(cell);
    if (header.empty()) {
      header = cells;
      continue;
    }
    const auto at = static_cast<size_t>(std::find(header.begin(), header.end(), name) - header.begin());
    if (cells.at(2) == phase) out.push_back(std::stod(cells.at(at)));
  }
  return out;
}

}  // namespace

TEST_CASE("metrics.csv has a row for every change of the loss scale, however seldom rows are logged") {
  TempDir dir;
  RunConfig config{.device = "cpu", .precision = "16-mixed"};
  config.model = {.name = "resnet18", .options = {{"stem", "imagenet"}}};
  config.data = {.name = "generated", .options = {{"train_size", 64}, {"val_size", 8}, {"batch_size", 8}, {"num_workers", "0"}}};
  config.trainer = {.max_epochs = 1, .check_val_every_n_epoch = 0, .log_every_n_steps = 100, .threads = 1};
  config.grad_scaler = {.init_scale = 4, .growth_interval = 3, .max_scale = 16};
  config.checkpoint.enabled = false;
  config.output.dir = dir.path().string();
  const auto result = Trainer(config).fit();
  const auto csv = fs::path(result.run_dir) / "metrics.csv";
  CHECK((column_of(csv, "loss_scale", "train") == std::vector<double>{8, 16}));  // 8 steps: after the 3rd and the 6th
  CHECK((column_of(csv, "step", "train") == std::vector<double>{3, 6}));
  CHECK((column_of(csv, "skipped", "train") == std::vector<double>{0, 0}));
  CHECK((column_of(csv, "loss_scale", "epoch") == std::vector<double>{16}));
}

TEST_CASE("a resumed run goes on in metrics.csv where its checkpoint was, skipped steps included") {
  TempDir dir;
  RunConfig config{.device = "cpu", .precision = "16-mixed"};
  config.model = {.name = "vit_tiny_cifar10", .options = {{"depth", 1}, {"dim", 32}, {"heads", 2}, {"patch_size", 8}}};
  config.data = {.name = "generated", .options = {{"train_size", 96}, {"val_size", 8}, {"batch_size", 8}, {"num_workers", "0"}}};
  config.trainer = {.max_epochs = 1, .check_val_every_n_epoch = 0, .threads = 1};
  config.grad_scaler = {.init_scale = 0x1p20, .growth_interval = 1, .max_scale = 0x1p40};  // up to an overflow, and back
  config.checkpoint.every_n_train_steps = 1;
  config.checkpoint.save_top_k = -1;
  config.output.dir = dir.path().string();
  const auto whole = Trainer(config).fit();
  const auto csv = fs::path(whole.run_dir) / "metrics.csv";
  const auto columns = [&] {
    std::vector<std::vector<double>> out;
    for (const char* name : {"epoch", "step", "skipped", "loss_scale", "loss"}) out.push_back(column_of(csv, name, "train"));
    return out;
  };
  const auto before = columns();
  REQUIRE(whole.skipped_steps >= 3);
  REQUIRE(before[0].size() == 12);
  for (const auto& entry : fs::directory_iterator(fs::path(whole.run_dir) / "checkpoints")) {
    const auto name = entry.path().filename().string();
    if (name == "last" || entry.is_symlink()) continue;
    CAPTURE(name);
    Trainer again(config);
    again.resume(entry.path().string());
    CHECK(again.fit().run_dir == whole.run_dir);
    CHECK((columns() == before));
  }
}

TEST_CASE("a device that vanishes in the middle of a run: an error of the device, in the log too, and the checkpoint of before is whole") {
  struct Vanishing final : Callback {
    void on_step_end(TrainLoop&, const StepReport& report) override {
      TORCH_CHECK(report.global_step < 5, "AclrtSynchronizeStream: NPU function error: call failed, error code is 507901");
    }
  };
  TempDir dir;
  RunConfig config{.device = "cpu", .precision = "32-true"};
  config.model = {.name = "vit_tiny_cifar10", .options = {{"depth", 1}, {"dim", 32}, {"heads", 2}, {"patch_size", 8}}};
  config.data = {.name = "generated", .options = {{"train_size", 64}, {"val_size", 8}, {"batch_size", 8}, {"num_workers", "0"}}};
  config.trainer = {.max_epochs = 1, .threads = 1};
  config.checkpoint.every_n_train_steps = 2;
  config.output.dir = dir.path().string();
  std::string run_dir;
  {
    Trainer trainer(config);
    trainer.add_callback(std::make_shared<Vanishing>());
    const auto error = error_of([&] { trainer.fit(); });
    CHECK(error.exit_code() == 4);
    CHECK_MESSAGE(has(error.what(), "npu_tool doctor --explain"), error.what());
    run_dir = trainer.run_dir();
  }
  std::stringstream log;
  log << std::ifstream(fs::path(run_dir) / "train.log").rdbuf();
  CHECK_MESSAGE(has(log.str(), "error code is 507901"), log.str());
  Trainer again(config);
  CHECK(load_checkpoint(again.resume("last"), {"loop"}).at("loop").integer("global_step", "") == 4);
  CHECK(again.fit().global_step == 8);
}
