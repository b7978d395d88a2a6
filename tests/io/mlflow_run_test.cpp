#include "testing.hpp"

#include "npu_train/io/mlflow_run.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "npu_train/core/config_node.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& path) { return read_file(path, 1 << 20); }

std::string meta_of(const MlflowRun& run, const char* key) {
  const auto meta = load_yaml((run.folder() / "meta.yaml").string());
  const auto* value = meta.find(key);
  REQUIRE(value != nullptr);
  return value->is_null() ? "null" : value->is_list() ? to_yaml_line(*value) : value->scalar();
}

/// Returns "VALUE STEP" of each line of a metric.
std::vector<std::string> values_of(const MlflowRun& run, const std::string& metric) {
  std::vector<std::string> out;
  std::istringstream in(text_of(run.folder() / "metrics" / metric));
  for (std::string line; std::getline(in, line);) out.push_back(line.substr(line.find(' ') + 1));
  return out;
}

std::set<std::string> folders_of(const fs::path& store) {
  std::set<std::string> out;
  for (const auto& item : fs::directory_iterator(store)) out.insert(item.path().filename().string());
  return out;
}

}  // namespace

TEST_CASE("a run has the files that MLflow's own store would have written") {
  TempDir dir;
  const auto store = dir / "my runs";
  auto run = MlflowRun::create(store, "nets \"A\"", "version_0");
  CHECK(folders_of(store) == std::set<std::string>{".trash", "0", run.id().experiment});
  CHECK(run.id().experiment.size() == 18);
  CHECK(run.id().run.size() == 32);
  const auto experiment = load_yaml((store / run.id().experiment / "meta.yaml").string());
  CHECK(experiment.find("name")->scalar() == "nets \"A\"");
  CHECK(experiment.find("experiment_id")->scalar() == run.id().experiment);
  CHECK(experiment.find("lifecycle_stage")->scalar() == "active");
  const auto location = "file://" + dir.path().string() + "/my%20runs/" + run.id().experiment;
  CHECK(experiment.find("artifact_location")->scalar() == location);
  CHECK(load_yaml((store / "0/meta.yaml").string()).find("name")->scalar() == "Default");
  CHECK(meta_of(run, "artifact_uri") == location + "/" + run.id().run + "/artifacts");
  CHECK(meta_of(run, "status") == "1");
  CHECK(meta_of(run, "end_time") == "null");
  CHECK(meta_of(run, "tags") == "[]");
  CHECK(text_of(run.folder() / "tags/mlflow.runName") == "version_0");

  CHECK(run.set_param("optimizer.lr", "0.1"));
  CHECK(run.set_param("optimizer.lr", "0.2"));  // keeps the first value, because parameters are constant
  CHECK(text_of(run.folder() / "params/optimizer.lr") == "0.1");
  CHECK_FALSE(run.set_param("long", std::string(5999, 'a') + "\u00e4\u00e4"));
  CHECK(text_of(run.folder() / "params/long") == std::string(5999, 'a'));  // cut between two characters
  CHECK(run.set_param("path", "/b\xe4 d\n"));
  CHECK(text_of(run.folder() / "params/path") == "/b\\xe4 d\n");  // MLflow reads UTF-8 only
  CHECK(run.put_artifact("config.yaml", "seed: 1\n"));
  CHECK(text_of(run.folder() / "artifacts/config.yaml") == "seed: 1\n");
  CHECK(error_of([&] { run.put_artifact("../meta.yaml", ""); }).kind() == ErrorKind::Checkpoint);

  run.log_metric("train/loss", 0.1, 1);
  run.log_metric("train/loss", kNaN, 2);
  run.log_metric("train/loss", kInf, 3);
  run.log_metric("train/loss", -kInf, 4);
  CHECK(values_of(run, "train/loss") == std::vector<std::string>{"0.1 1", "nan 2", "inf 3", "-inf 4"});
  run.set_status(MlflowStatus::Killed);
  CHECK(meta_of(run, "status") == "5");
  CHECK(decimal_number(meta_of(run, "end_time")) >= decimal_number(meta_of(run, "start_time")));
  CHECK(folders_of(run.folder()) == std::set<std::string>{"artifacts", "meta.yaml", "metrics", "params", "tags"});  // no temporary files
}

TEST_CASE("names that MLflow refuses are changed, and stay different") {
  for (const char* good : {"train/loss", "a b", "optimizer.lr", "x-y_z", "_1", "a/.b"}) CHECK(mlflow_name(good) == good);
  CHECK(mlflow_name("acc@1").starts_with("acc_1_"));
  std::set<std::string> names;
  const std::vector<std::string> bad = {"acc@1",
                                        "acc#1",
                                        "\u00e4",
                                        "\u00f6",
                                        "",
                                        ".",
                                        "..",
                                        "/a",
                                        "a//b",
                                        "a/../b",
                                        "a/",
                                        "..a",
                                        "../../etc",
                                        std::string(251, 'a'),
                                        std::string(252, 'a'),
                                        std::string(249, 'a') + "/b"};
  for (const auto& name : bad) {
    const auto changed = mlflow_name(name);
    CAPTURE(name);
    CHECK(changed.size() <= 250);
    CHECK(changed == fs::path(changed).lexically_normal().string());
    CHECK_FALSE(changed.starts_with("/"));
    CHECK_FALSE(changed.starts_with(".."));
    CHECK(mlflow_name(changed) == changed);
    names.insert(changed);
  }
  CHECK(names.size() == bad.size());
}

TEST_CASE("a run continues: its status, what it logs again, and what other programs logged") {
  TempDir dir;
  auto first = MlflowRun::create(dir / "mlruns", "nets", "one");
  for (int64_t step = 1; step <= 4; ++step) first.log_metric("train/loss", static_cast<double>(step), step);
  first.log_metric("of_others", 7, 4);
  first.set_status(MlflowStatus::Failed);
  const auto leftover = first.folder() / ".new.tmp-abcdef-1-0";  // of a process that was killed on another machine
  std::ofstream(leftover) << "x";
  fs::last_write_time(leftover, fs::file_time_type::clock::now() - std::chrono::hours(25));
  auto again = MlflowRun::reopen(dir / "mlruns", first.id());
  REQUIRE(again);
  CHECK_FALSE(fs::exists(leftover));
  CHECK(meta_of(*again, "status") == "4");
  CHECK(again->tag("mlflow.runName") == "one");
  CHECK(again->tag("none").empty());
  again->set_status(MlflowStatus::Running);
  CHECK(meta_of(*again, "status") == "1");
  CHECK(meta_of(*again, "end_time") == "null");
  CHECK(meta_of(*again, "run_name") == "one");
  again->replace_from(3);
  again->log_metric("train/loss", 30, 3);
  again->log_metric("train/loss", 40, 4);
  again->log_metric("val/loss", 5, 4);
  CHECK(values_of(*again, "train/loss") == std::vector<std::string>{"1 1", "2 2", "30 3", "40 4"});
  CHECK(values_of(*again, "val/loss") == std::vector<std::string>{"5 4"});
  CHECK(values_of(*again, "of_others") == std::vector<std::string>{"7 4"});
}

TEST_CASE("a run that is deleted, absent or elsewhere is not continued") {
  TempDir dir;
  const auto run = MlflowRun::create(dir / "mlruns", "nets", "one");
  CHECK_FALSE(MlflowRun::reopen(dir / "other", run.id()));
  CHECK_FALSE(MlflowRun::reopen(dir / "mlruns", {run.id().experiment, std::string(32, 'a')}));
  for (const char* bad : {"..", "", "../mlruns", "a/b", ".trash"}) CHECK_FALSE(MlflowRun::reopen(dir / "mlruns", {bad, run.id().run}));
  const auto meta = run.folder() / "meta.yaml";
  auto text = text_of(meta);
  text.replace(text.find("active"), 6, "deleted");
  std::ofstream(meta, std::ios::trunc) << text;
  CHECK_FALSE(MlflowRun::reopen(dir / "mlruns", run.id()));
}

TEST_CASE("experiments are found by name, also renamed ones, and a deleted one is an error") {
  TempDir dir;
  const auto store = dir / "mlruns";
  const auto first = MlflowRun::create(store, "nets", "one").id(), second = MlflowRun::create(store, "nets", "two").id();
  CHECK(first.experiment == second.experiment);
  CHECK(first.run != second.run);
  fs::copy(store / first.experiment, store / "00", fs::copy_options::recursive);  // MLflow ignores this folder
  CHECK(MlflowRun::create(store, "nets", "after the copy").id().experiment == first.experiment);
  CHECK(MlflowRun::create(store, "Default", "three").id().experiment == "0");
  const auto meta = store / first.experiment / "meta.yaml";
  auto text = text_of(meta);
  text.replace(text.find("\"nets\""), 6, "renamed");
  std::ofstream(meta, std::ios::trunc) << text;
  CHECK(MlflowRun::create(store, "renamed", "four").id().experiment == first.experiment);
  const auto other = MlflowRun::create(store, "nets", "five").id().experiment;
  CHECK(other != first.experiment);
  CHECK(MlflowRun::create(store, "nets", "six").id().experiment == other);
  fs::rename(store / other, store / ".trash" / other);
  const auto e = error_of([&] { MlflowRun::create(store, "nets", "seven"); });
  CHECK(e.kind() == ErrorKind::Checkpoint);
  CHECK_MESSAGE(has(e.what(), "'nets' of " + store.string() + " is deleted; hint: mlflow experiments restore -x " + other), e.what());
}

TEST_CASE("an experiment of MLflow with artifacts in an object store gets no files there") {
  TempDir dir;
  fs::create_directories(dir / "mlruns/12");
  std::ofstream(dir / "mlruns/12/meta.yaml")
      << "artifact_location: s3://bucket/nets/\nexperiment_id: '12'\nlifecycle_stage: active\nname: nets\n";
  auto run = MlflowRun::create(dir / "mlruns", "nets", "one");
  CHECK(run.id().experiment == "12");
  CHECK(meta_of(run, "artifact_uri") == "s3://bucket/nets/" + run.id().run + "/artifacts");
  CHECK_FALSE(run.put_artifact("config.yaml", "seed: 1\n"));
  CHECK(fs::is_empty(run.folder() / "artifacts"));
}

TEST_CASE("runs that begin at the same time create one experiment, and keep their own files") {
  TempDir dir;
  constexpr int kWriters = 8;
  std::vector<std::string> experiments(kWriters);
  std::vector<std::thread> writers;
  for (int i = 0; i < kWriters; ++i)
    writers.emplace_back([&, i] {
      auto run = MlflowRun::create(dir / "mlruns", "nets", std::to_string(i));
      for (int64_t step = 0; step < 20; ++step) run.log_metric("loss", i, step);
      experiments[static_cast<size_t>(i)] = run.id().experiment;
    });
  for (auto& writer : writers) writer.join();
  CHECK(std::set<std::string>(experiments.begin(), experiments.end()).size() == 1);
  CHECK(folders_of(dir / "mlruns") == std::set<std::string>{".trash", "0", experiments[0]});
  size_t runs = 0;
  for (const auto& item : fs::directory_iterator(dir / "mlruns" / experiments[0])) {
    if (!item.is_directory()) continue;
    ++runs;
    const auto text = text_of(item.path() / "metrics/loss");
    CHECK(std::count(text.begin(), text.end(), '\n') == 20);
  }
  CHECK(runs == kWriters);
}

TEST_CASE("a store that cannot be written is an error") {
  CHECK(error_of([] { MlflowRun::create("/proc/none/mlruns", "nets", "one"); }).kind() == ErrorKind::Checkpoint);
}
