#include "testing.hpp"

#include "npu_train/engine/environment.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/tools/align/run_comparison.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;
using npu_train::testing::TempDir;

namespace {

void run_folder(const std::filesystem::path& folder, double lr, double factor) {
  make_folder(folder);
  write_file_atomic(folder / "config.yaml", "optimizer: {name: sgd, lr: " + std::to_string(lr) + "}\noutput: {dir: x}\n");
  std::string rows = "epoch,step,phase,loss,lr\n";
  for (int i = 1; i <= 40; ++i)
    rows += "0," + std::to_string(i) + ",train," + std::to_string(factor * 2.0 / i) + "," + std::to_string(lr) + "\n";
  write_file_atomic(folder / "metrics.csv", rows);
  write_environment(folder / "environment.json");
}

}  // namespace

TEST_CASE("run folders: configuration, environment and history together") {
  TempDir dir;
  run_folder(dir / "a", 0.1, 1);
  run_folder(dir / "b", 0.1, 1.001);
  run_folder(dir / "c", 0.2, 1.5);
  const auto near = compare_runs(dir / "a", dir / "b");
  CHECK(near.agrees());
  CHECK(near.config->empty());
  CHECK(near.environment->empty());
  const auto far = compare_runs(dir / "a", dir / "c");
  CHECK_FALSE(far.agrees());
  CHECK(far.config->at(0).path == "optimizer.lr");
  const auto text = to_text(far);
  CHECK(has(text, "optimizer.lr"));
  CHECK(text.starts_with("the histories differ; settings that may change numbers differ: 1 of the configuration\n"));
  CHECK_FALSE(to_json(far).at("agrees", "j").boolean("j"));
  CHECK(has(to_html(far), "Learning rate"));
  CHECK(has(to_csv(far), "1,2,3,"));
  CHECK(to_json(near).at("complete", "j").boolean("j"));
  write_file_atomic(dir / "b/metrics.csv", "step,phase,loss,lr\n40,train,0.05,0.1\n41,train,0.04,0.1\n");
  const auto part = compare_runs(dir / "a", dir / "b");
  CHECK(part.agrees());
  CHECK_FALSE(to_json(part).at("complete", "j").boolean("j"));
  CHECK(has(to_text(part), "agree at their common steps; the other steps were not compared\n"));
}

TEST_CASE("a run folder and a log are compared as histories, epochs with epochs") {
  TempDir dir;
  run_folder(dir / "a", 0.1, 1);
  const auto with_log = compare_runs(dir / "a", dir / "a/metrics.csv");
  CHECK(with_log.agrees());
  CHECK_FALSE(with_log.config);
  CHECK(with_log.history->rows.size() == 40);
  write_file_atomic(dir / "m.csv", "step,phase,loss\n1,train,9\n2,train,1\n2,epoch,5\n");
  write_file_atomic(dir / "history.json", R"({"epochs": [{"global_step": 2, "train": {"loss": 5.0}}]})");
  for (const auto& [a, b] : {std::pair("m.csv", "history.json"), std::pair("history.json", "m.csv")}) {
    const auto epochs = compare_runs(dir / a, dir / b);
    CHECK(epochs.history->rows.size() == 1);
    CHECK(epochs.history->max_relative == 0);
  }
  write_file_atomic(dir / "other.csv", "step,loss\n2,5.0\n");
  CHECK(has(to_text(compare_runs(dir / "other.csv", dir / "history.json")), "the losses of B are means over epochs"));
}

TEST_CASE("configurations are completed where both can be") {
  TempDir dir;
  write_file_atomic(dir / "a.yaml", "lr: 1\n");
  write_file_atomic(dir / "b.yaml", "lr: 1\neps: 0\n");
  write_file_atomic(dir / "foreign.yaml", "foreign: 1\n");
  RunComparisonOptions options;
  options.complete_config = [](const ConfigNode& node, std::string& why) -> std::optional<ConfigNode> {
    if (node.find("lr") == nullptr) return why = "has no lr", std::nullopt;
    auto out = node;
    if (out.find("eps") == nullptr) out.set("eps", 0);
    return out;
  };
  CHECK_FALSE(compare_runs(dir / "a.yaml", dir / "b.yaml").agrees());
  CHECK(compare_runs(dir / "a.yaml", dir / "b.yaml", options).config->empty());
  const auto foreign = compare_runs(dir / "a.yaml", dir / "foreign.yaml", options);
  CHECK(foreign.config->size() == 2);
  REQUIRE(foreign.notes.size() == 1);
  CHECK(has(foreign.notes[0], "foreign.yaml: has no lr; no defaults were filled in"));
}

TEST_CASE("files alone, and what is not two of a kind") {
  TempDir dir;
  write_file_atomic(dir / "a.yaml", "seed: 1\n");
  write_file_atomic(dir / "b.yaml", "seed: 1\noutput: {dir: y}\n");
  write_file_atomic(dir / "c.yaml", "seed: 2\n");
  CHECK(compare_runs(dir / "a.yaml", dir / "b.yaml").agrees());
  CHECK_FALSE(compare_runs(dir / "a.yaml", dir / "c.yaml").agrees());
  write_file_atomic(dir / "a.jsonl", "{\"iter\": 1, \"train_loss\": 2.0}\n{\"iter\": 2, \"train_loss\": 1.0}\n");
  write_file_atomic(dir / "b.csv", "n,l\n1,2.0\n2,1.0\n");
  RunComparisonOptions options;
  options.columns_b = {.step = "n", .loss = "l"};
  CHECK(compare_runs(dir / "a.jsonl", dir / "b.csv", options).agrees());
  CHECK(kind_of_run_file(dir / "b.csv") == "a loss history");
  CHECK(kind_of_run_file(dir.path()).empty());
  CHECK(has(error_of([&] { compare_runs(dir / "a.yaml", dir / "b.csv"); }).what(), "not of the same kind"));
  CHECK(has(error_of([&] { compare_runs(dir / "a.yaml", dir / "none.yaml"); }).what(), "no such file"));
}
