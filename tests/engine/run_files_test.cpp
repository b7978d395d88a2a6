#include "testing.hpp"

#include "npu_train/engine/run_files.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <sstream>

#include "npu_train/core/log.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/json.hpp"
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

/// Returns the cells of a column in the rows of `phase`, without empty ones.
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
    if (cells.at(2) == phase && at < cells.size() && !cells[at].empty()) out.push_back(std::stod(cells[at]));
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
  CHECK((column_of(csv, "loss_scale", "train") == std::vector<double>{8, 16}));  // after the 3rd and the 6th of 8 steps
  CHECK((column_of(csv, "step", "train") == std::vector<double>{3, 6}));
  CHECK((column_of(csv, "skipped", "train") == std::vector<double>{0, 0}));
  CHECK((column_of(csv, "loss_scale", "epoch") == std::vector<double>{16}));
}

TEST_CASE("a resumed run continues in metrics.csv where its checkpoint was, skipped steps included") {
  TempDir dir;
  RunConfig config{.device = "cpu", .precision = "16-mixed"};
  config.model = {.name = "vit_tiny_cifar10", .options = {{"depth", 1}, {"dim", 32}, {"heads", 2}, {"patch_size", 8}}};
  config.data = {.name = "generated", .options = {{"train_size", 96}, {"val_size", 8}, {"batch_size", 8}, {"num_workers", "0"}}};
  config.trainer = {.max_epochs = 1, .check_val_every_n_epoch = 0, .threads = 1};
  config.grad_scaler = {.init_scale = 0x1p20, .growth_interval = 1, .max_scale = 0x1p40};  // grows until an overflow, and falls again
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

namespace {

/// Two epochs of four steps, each with a validation, and checkpoints at the last step of an epoch as well as at its end.
RunConfig short_config(const TempDir& dir) {
  RunConfig config{.device = "cpu", .precision = "32-true"};
  config.model = {.name = "vit_tiny_cifar10", .options = {{"depth", 1}, {"dim", 32}, {"heads", 2}, {"patch_size", 8}}};
  config.data = {.name = "generated", .options = {{"train_size", 32}, {"val_size", 8}, {"batch_size", 8}, {"num_workers", "0"}}};
  config.trainer = {.max_epochs = 2, .log_every_n_steps = 1, .threads = 1};
  config.checkpoint.every_n_train_steps = 4;
  config.checkpoint.save_top_k = -1;
  config.output.dir = dir.path().string();
  return config;
}

std::string log_text(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// Returns the logged values that do not depend on time: epoch, step, phase and loss of every row, and the epochs of history.json.
std::vector<std::string> logged(const fs::path& run_dir) {
  std::vector<std::string> out;
  std::istringstream csv(log_text(run_dir / "metrics.csv"));
  for (std::string line; std::getline(csv, line);) {
    size_t end = 0;
    for (int cell = 0; cell < 4; ++cell) end = line.find(',', end + 1);
    out.push_back(line.substr(0, end));
  }
  const auto history = load_json(run_dir / "history.json");
  for (const auto& epoch : history.at("epochs", "").items(""))
    out.push_back("history " + epoch.at("epoch", "").dump() + epoch.at("train", "").dump() + epoch.at("val", "").dump());
  return out;
}

/// Leaves only this checkpoint, as if the process had been killed before it wrote the next ones.
void killed_after(const fs::path& run_dir, const std::string& checkpoint) {
  for (const auto& item : std::vector<fs::directory_entry>(fs::directory_iterator(run_dir / "checkpoints"), {}))
    if (item.path().filename() != checkpoint) fs::remove_all(item.path());
  REQUIRE(fs::exists(run_dir / "checkpoints" / checkpoint));
}

}  // namespace

TEST_CASE("after a kill between the save of an epoch's last step and that of its end, logs have no row twice") {
  TempDir dir;
  const auto config = short_config(dir);
  const fs::path run_dir = Trainer(config).fit().run_dir;
  const auto wanted = logged(run_dir);
  CHECK(wanted.size() == 1 + 8 + 2 + 2 + 2);
  for (const char* checkpoint : {"epoch=000-step=4", "epoch=001-step=4", "epoch=001-step=8"}) {
    CAPTURE(checkpoint);
    killed_after(run_dir, checkpoint);
    Trainer again(config);
    CHECK(has(again.resume("auto"), checkpoint));
    again.fit();
    CHECK((logged(run_dir) == wanted));
  }
}

TEST_CASE("the log of a run in slices has the rows of the run that was not stopped, and the validation of each stop, once") {
  TempDir dir;
  auto config = short_config(dir);
  config.output.name = "complete";
  auto wanted = logged(Trainer(config).fit().run_dir);
  config.output.name = "slices";
  fs::path run_dir;
  std::vector<std::string> stops;
  for (const int64_t steps : {3, 3, 4, 6, 6, -1}) {
    config.trainer.max_steps = steps;
    Trainer slice(config);
    slice.resume("auto");
    run_dir = slice.fit().run_dir;
    for (const auto& row : logged(run_dir))
      if (row.starts_with(str_cat(steps == 3 ? 0 : 1, ",", steps, ",val,"))) stops.push_back(row);
  }
  CHECK((column_of(run_dir / "metrics.csv", "step", "val") == std::vector<double>{3, 4, 6, 8}));
  REQUIRE(stops.size() == 4);
  CHECK((stops[0] == stops[1] && stops[2] == stops[3]));  // no step followed the first and the third stop
  wanted.insert(wanted.end(), {stops[0], stops[2]});
  auto rows = logged(run_dir);
  std::sort(wanted.begin(), wanted.end());
  std::sort(rows.begin(), rows.end());
  CHECK((rows == wanted));
}

TEST_CASE("the log of an earlier version, which counted images per second, continues") {
  TempDir dir;
  const auto config = short_config(dir);
  const fs::path run_dir = Trainer(config).fit().run_dir, csv = run_dir / "metrics.csv";
  const auto wanted = logged(run_dir);
  auto text = log_text(csv);
  text.replace(text.find("samples_per_second"), std::string_view("samples_per_second").size(), "images_per_second");
  std::ofstream(csv, std::ios::trunc) << text;
  killed_after(run_dir, "epoch=001-step=4");
  Trainer again(config);
  again.resume("auto");
  again.fit();
  CHECK((logged(run_dir) == wanted));
  CHECK_FALSE(fs::exists(csv.string() + ".damaged"));
}

TEST_CASE("a damaged log is renamed with a warning and does not keep a run from continuing") {
  TempDir dir;
  const auto config = short_config(dir);
  const fs::path run_dir = Trainer(config).fit().run_dir;
  const auto wanted = logged(run_dir);
  const auto csv = run_dir / "metrics.csv", history = run_dir / "history.json";
  std::string said;
  const ScopedLogSink sink([&](LogLevel level, std::string_view text) {
    if (level == LogLevel::Warning) said += std::string(text) + "\n";
  });
  const auto go_on = [&] {
    said.clear();
    killed_after(run_dir, "epoch=001-step=4");
    Trainer again(config);
    again.resume("auto");
    CHECK(again.fit().global_step == 8);
  };
  const auto put = [](const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::trunc) << text; };

  SUBCASE("truncated history") {
    const auto damaged = log_text(history).substr(0, 300);
    put(history, damaged);
    go_on();
    CHECK_MESSAGE(has(said, history.string() + ".damaged"), said);
    CHECK(log_text(history.string() + ".damaged") == damaged);
    CHECK(load_json(history).at("epochs", "").items("").size() == 1);
  }
  SUBCASE("history is another document, and once more") {
    for (const char* aside : {".damaged", ".damaged-2"}) {
      put(history, "{\"epochs\": {\"a\": 99999999999999999999}}");
      go_on();
      CHECK_MESSAGE(has(said, history.string() + aside + ";"), said);
    }
  }
  SUBCASE("history is a folder") {
    fs::remove(history);
    fs::create_directory(history);
    go_on();
    CHECK_MESSAGE(has(said, history.string() + ".damaged"), said);
  }
  SUBCASE("a number that no integer holds in metrics.csv") {
    auto text = log_text(csv);
    const auto at = text.find("0,2,train");
    REQUIRE(at != std::string::npos);
    put(csv, text.insert(at + 2, "99999999999999999999"));
    go_on();
    CHECK_MESSAGE(has(said, "line 3 cannot be read; it is kept as " + csv.string() + ".damaged"), said);
    CHECK(log_text(csv.string() + ".damaged") == text);
    auto without = wanted;
    without.erase(without.begin() + 2);  // only that row is lost
    CHECK((logged(run_dir) == without));
  }
  SUBCASE("metrics.csv without a header") {
    put(csv, "epoch,step,loss\n0,1,2.5\n");
    go_on();
    CHECK_MESSAGE(has(said, "its first line does not name its columns"), said);
    CHECK((column_of(csv, "step", "train") == std::vector<double>{5, 6, 7, 8}));
  }
  SUBCASE("metrics.csv of other columns keeps its rows") {
    put(csv, "epoch,step,phase,accuracy,loss\n0,1,train,0.5,2.5\n");
    go_on();
    CHECK(said.empty());
    CHECK((column_of(csv, "step", "train") == std::vector<double>{1, 5, 6, 7, 8}));
    const auto text = log_text(csv);
    CHECK_MESSAGE(has(text, "epoch,step,phase,loss,acc1,"), text);
    CHECK_MESSAGE(has(text, "seconds,accuracy\n0,1,train,2.5,,"), text);
    CHECK_MESSAGE(has(text, ",0.5\n"), text);
  }
  SUBCASE("a last line without its end is no damage") {
    put(csv, log_text(csv) + "1,4,tra");
    go_on();
    CHECK(said.empty());
    CHECK((logged(run_dir) == wanted));
  }
  SUBCASE("train.log is a folder") {
    fs::remove(run_dir / "train.log");
    fs::create_directory(run_dir / "train.log");
    go_on();
    CHECK_MESSAGE(has(said, "the run has no train.log"), said);
    CHECK((logged(run_dir) == wanted));
  }
}

TEST_CASE("values that a program logs are in metrics.csv and TensorBoard, also after a resume") {
  // Logs a value of each step, derived from the loss, and a value of each epoch.
  struct Logs final : Callback {
    void on_step_end(TrainLoop& loop, const StepReport& report) override {
      loop.log("own/step", static_cast<double>(report.global_step) / 2, report.global_step);
      loop.log("own/loss_2", 2 * report.metrics.front().second, report.global_step);
    }
    void on_epoch_end(TrainLoop& loop, const EpochReport& report) override { loop.log("own.epoch", report.epoch == 0 ? std::nan("") : 7); }
  };
  TempDir dir;
  const auto config = short_config(dir);
  Trainer trainer(config);
  trainer.add_callback(std::make_shared<Logs>());
  const fs::path run_dir = trainer.fit().run_dir;
  const auto csv = run_dir / "metrics.csv";
  CHECK((column_of(csv, "step", "train") == std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}));
  CHECK((column_of(csv, "own/step", "log") == std::vector<double>{0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4}));
  const auto text = log_text(csv), header = text.substr(0, text.find('\n'));
  CHECK_MESSAGE(header.ends_with(",seconds,own/step,own/loss_2,own.epoch"), header);
  const auto of_epochs = column_of(csv, "own.epoch", "log");
  CHECK((of_epochs.size() == 2 && std::isnan(of_epochs[0]) && of_epochs[1] == 7));
  for (size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1)  // each row has all columns
    CHECK(std::count(text.begin() + static_cast<std::ptrdiff_t>(begin), text.begin() + static_cast<std::ptrdiff_t>(text.find('\n', begin)),
                     ',') == std::count(header.begin(), header.end(), ','));
  const auto wanted = logged(run_dir);
  killed_after(run_dir, "epoch=001-step=4");
  Trainer again(config);
  again.add_callback(std::make_shared<Logs>());
  again.resume("auto");
  again.fit();
  CHECK((logged(run_dir) == wanted));
  for (const char* name : {"", "a,b", "epoch", "phase", "a b", "a\nb"}) {
    const auto error = error_of([&] { again.log(name, 1); });
    CHECK(error.kind() == ErrorKind::Usage);
    CHECK_MESSAGE(has(error.what(), "is not valid"), error.what());
  }
  CHECK(has(error_of([&] { again.log("own/step", 1, -1); }).what(), "for step -1"));
  CHECK(has(error_of([&] { again.log("val/own", 1); }).what(), "begins with val/"));
  std::string said;
  const ScopedLogSink sink([&](LogLevel, std::string_view text) { said += text; });
  Trainer(config).log("early", 1);
  CHECK_MESSAGE(has(said, "'early' was logged before the run has its folder"), said);
  {
    Trainer last(config);
    const fs::path folder = last.fit().run_dir;
    last.log("test/acc", 0.5);
    for (int i = 0; i < 980; ++i) last.log(str_cat("many/", i), i, 8);
    const auto error = error_of([&] {
      for (int i = 0; i < 30; ++i) last.log(str_cat("more/", i), i, 8);
    });
    CHECK_MESSAGE(has(error.what(), "is one name too many: there are 1000"), error.what());
    last = Trainer(config);  // destroys the previous trainer
    CHECK((column_of(folder / "metrics.csv", "test/acc", "log") == std::vector<double>{0.5}));
    CHECK((column_of(folder / "metrics.csv", "many/979", "log") == std::vector<double>{979}));
  }
}

TEST_CASE("one run at a time writes into a run folder, and the other hears who") {
  struct Meanwhile final : Callback {
    explicit Meanwhile(std::function<void()> work) : work(std::move(work)) {}
    void on_validation_end(TrainLoop&, const Scalars&) override { work(); }
    std::function<void()> work;
  };
  TempDir dir;
  const auto config = short_config(dir);
  Trainer first(config);
  int refused = 0;
  first.add_callback(std::make_shared<Meanwhile>([&] {
    for (const char* which : {"auto", "last"}) {
      Trainer second(config);
      const auto error = error_of([&] { second.resume(which); });
      CHECK(error.exit_code() == 6);
      CHECK_MESSAGE(has(error.what(), "version_0: is in use by process " + std::to_string(::getpid())), error.what());
      ++refused;
    }
  }));
  const auto result = first.fit();
  CHECK(refused == 4);  // also before the first checkpoint
  // The folder is free after the fit, and is locked again when the run itself continues.
  CHECK_FALSE(fs::exists(fs::path(result.run_dir) / "run.lock"));
  Trainer second(config);
  CHECK_FALSE(second.resume("auto").empty());
  CHECK(error_of([&] { first.save_checkpoint(); }).exit_code() == 6);
  second.fit();
  CHECK_FALSE(first.save_checkpoint().empty());
}

TEST_CASE("incomplete files of a killed run are removed when the run continues, with one line in the log") {
  TempDir dir;
  const auto config = short_config(dir);
  const fs::path run_dir = Trainer(config).fit().run_dir;
  killed_after(run_dir, "epoch=001-step=4");
  for (const char* name : {"checkpoints/.epoch=001-step=8.tmp-abcdef-1-0", ".diverged.tmp-abcdef-1-0", "mine.tmp-abcdef-1-0"})
    fs::create_directory(run_dir / name);
  std::ofstream(run_dir / ".history.json.tmp-abcdef-1-0") << "x";
  std::ofstream(run_dir / "run.lock") << "x";
  std::string said;
  const ScopedLogSink sink([&](LogLevel, std::string_view text) { said += std::string(text) + "\n"; });
  Trainer again(config);
  again.resume("auto");
  again.fit();
  CHECK_MESSAGE(has(said, "removed from " + run_dir.string() + " incomplete files of a killed run: 3 items\n"), said);
  for (const auto& item : fs::recursive_directory_iterator(run_dir)) CHECK_FALSE(item.path().filename().string().starts_with("."));
  CHECK(fs::exists(run_dir / "mine.tmp-abcdef-1-0"));
  CHECK_FALSE(fs::exists(run_dir / "run.lock"));
}

TEST_CASE("a device that vanishes in the middle of a run: a device error, also in the log, and the previous checkpoint is complete") {
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
