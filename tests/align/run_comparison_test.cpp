#include "testing.hpp"

#include "npu_train/align/environment.hpp"
#include "npu_train/align/run_comparison.hpp"
#include "npu_train/io/file.hpp"

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
  CHECK(text.ends_with("the histories differ; settings that may change numbers differ: 1 of the configuration\n"));
  CHECK_FALSE(to_json(far).at("agrees", "j").boolean("j"));
  CHECK(has(to_html(far), "Learning rate"));
  CHECK(has(to_csv(far), "1,2,3,"));
  CHECK(to_json(near).at("complete", "j").boolean("j"));
  write_file_atomic(dir / "b/metrics.csv", "step,phase,loss,lr\n40,train,0.05,0.1\n41,train,0.04,0.1\n");
  const auto part = compare_runs(dir / "a", dir / "b");
  CHECK(part.agrees());
  CHECK_FALSE(to_json(part).at("complete", "j").boolean("j"));
  CHECK(to_text(part).ends_with("agree where they have the same steps; the others were not compared\n"));
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
  CHECK(has(error_of([&] { compare_runs(dir / "a.yaml", dir / "b.csv"); }).what(), "not two of a kind"));
  CHECK(has(error_of([&] { compare_runs(dir / "a.yaml", dir / "none.yaml"); }).what(), "no such file"));
}
