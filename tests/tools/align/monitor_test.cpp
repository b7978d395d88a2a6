#include "testing.hpp"

#include "npu_train/tools/align/monitor.hpp"

#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <set>

#include "engine/short_run.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/align/dump_section.hpp"
#include "npu_train/tools/align/monitor_log.hpp"
#include "npu_train/tools/align/statistics.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

Parts with_monitor() {
  auto parts = builtin_parts();
  add_dump(parts);
  add_monitor(parts);
  return parts;
}

RunConfig monitored(const TempDir& dir, ConfigNode section) {
  auto config = short_run();
  config.optimizer = {.name = "adamw", .options = {{"lr", 0.002}}};
  section.set("dir", dir.path().string());
  config.sections["monitor"] = std::move(section);
  return config;
}

std::map<std::string, MonitorRow> rows_of(const fs::path& file, const std::string& what, int64_t attempt) {
  std::map<std::string, MonitorRow> out;
  read_monitor(file, [&](const MonitorRow& row) {
    if (row.what == what && row.attempt == attempt) CHECK(out.emplace(row.name, row).second);
  });
  return out;
}

std::set<int64_t> attempts_in(const fs::path& file) {
  std::set<int64_t> out;
  read_monitor(file, [&](const MonitorRow& row) {
    out.insert(row.attempt);
    CHECK(row.step == row.attempt + 1);
  });
  return out;
}

}  // namespace

TEST_CASE("weights, gradients and optimizer state are those of the dump of the same run") {
  TempDir dir;
  auto config = monitored(dir, {{"every", 3}, {"what", ConfigNode::list({"weights", "gradients", "optimizer"})}});
  config.trainer.max_steps = 7;
  config.trainer.gradient_clip_val = 1e-3;  // clips after the gradients are recorded
  config.sections["dump"] = {{"dir", (dir / "dump").string()}, {"data_mode", ConfigNode::list({"parameters_grad", "optimizer"})}};
  Trainer trainer(config, with_monitor());
  auto initial = trainer.state().at("model").tensors;
  for (auto& [name, tensor] : initial) tensor = tensor.clone();
  trainer.fit();
  const auto file = dir / "monitor.csv";
  CHECK(attempts_in(file) == std::set<int64_t>{0, 2, 5});

  for (const auto& [name, row] : rows_of(file, "weights", 0)) {
    const auto wanted = statistics_of(initial.at(name));
    CHECK(row.norm == doctest::Approx(*wanted.norm).epsilon(1e-12));
    CHECK(row.max == *wanted.max);
    CHECK(row.numel == initial.at(name).numel());
  }
  const auto dump = load_json(dir / "dump/step5/rank0/dump.json");
  const auto& data = dump.at("data", "dump");
  size_t compared = 0;
  const auto compare = [&](const Json& leaf, const MonitorRow& row) {
    CHECK(row.norm == doctest::Approx(leaf.at("Norm", "").number("")).epsilon(1e-12));
    CHECK(row.max == leaf.at("Max", "").number(""));
    ++compared;
  };
  const auto gradients = rows_of(file, "gradients", 5), state = rows_of(file, "optimizer", 5);
  for (const auto& [call, entry] : data.members("dump")) {
    if (has(call, ".parameters_grad."))
      for (const auto& [key, values] : entry.members(""))
        for (const auto& [name, row] : gradients)
          if (has(call, "." + name.substr(0, name.rfind('.')) + ".") && name.ends_with("." + key) && row.numel > 0 &&
              call.starts_with("Module." + name.substr(0, name.rfind('.')) + "."))
            compare(values.items("").front(), row);
    if (has(call, "Module.optimizer."))
      for (const auto& [name, leaf] : entry.at("output", "").members(""))
        if (state.count(name) > 0) compare(leaf, state.at(name));
  }
  CHECK(gradients.size() == rows_of(file, "weights", 5).size());
  CHECK(state.size() == 2 * gradients.size());
  CHECK(compared >= 2 * gradients.size());
  CHECK(state.count("exp_avg/conv_proj.weight") == 1);
}

TEST_CASE("an activation is the output of a layer over all micro-batches, and rows come in the order of the computation") {
  TempDir dir;
  auto config = monitored(dir, {{"every", 2}});
  config.trainer.max_steps = 3;
  config.trainer.accumulate_grad_batches = 2;
  Trainer(config, with_monitor()).fit();
  const auto file = dir / "monitor.csv";
  const auto activations = rows_of(file, "activations", 1);
  REQUIRE(activations.count("conv_proj") == 1);
  CHECK(activations.at("conv_proj").numel == 2 * 8 * 32 * 4 * 4);  // two micro-batches of 8 images of 4 x 4 patches
  CHECK(activations.at("conv_proj").std > 0);
  std::vector<std::string> kinds, gradients;
  read_monitor(file, [&](const MonitorRow& row) {
    if (kinds.empty() || kinds.back() != row.what) kinds.push_back(row.what);
    if (row.what == "gradients" && row.attempt == 0) gradients.push_back(row.name);
  });
  CHECK(kinds ==
        std::vector<std::string>{"weights", "activations", "gradients", "optimizer", "weights", "activations", "gradients", "optimizer"});
  REQUIRE(gradients.size() > 4);
  CHECK(has(gradients.front(), "head"));  // gradients begin at the loss
}

TEST_CASE("the statistics do not change the training, and a resumed run continues the file") {
  TempDir dir, whole, parts;
  auto config = monitored(whole, {{"every", 2}});
  config.trainer.max_steps = 9;
  Trainer(config, with_monitor()).fit();

  auto part = monitored(parts, {{"every", 2}});
  part.trainer.max_steps = 5;
  part.output.dir = dir.path().string();
  const auto first = Trainer(part, with_monitor()).fit();
  // the file of the resumed run has a row beyond the checkpoint, and a part of another row
  const auto file = parts / "monitor.csv";
  MonitorRow lost{.attempt = 7, .step = 8, .what = "weights", .name = "x"};
  write_file_atomic(file, read_file(file, 1 << 20) + to_csv(lost) + "9,1");
  const auto resumed = [&](int64_t steps) {
    part.trainer.max_steps = steps;
    Trainer trainer(part, with_monitor());
    REQUIRE(trainer.resume("auto") != "");
    trainer.fit();
  };
  resumed(9);
  CHECK(read_file(file, 1 << 20) == read_file(whole / "monitor.csv", 1 << 20));
  CHECK(first.global_step == 5);

  write_file_atomic(file, "not,a,monitor\n");
  resumed(11);
  CHECK(read_file(parts / "monitor.csv.damaged", 1 << 20) == "not,a,monitor\n");
  CHECK(attempts_in(file) == std::set<int64_t>{9});

  auto plain = short_run();
  plain.optimizer = config.optimizer;
  plain.trainer.max_steps = 9;
  Trainer without(plain, builtin_parts()), with(config, with_monitor());
  without.fit(), with.fit();
  const auto a = without.state().at("model").tensors, b = with.state().at("model").tensors;
  for (const auto& [name, tensor] : a) CHECK(tensor.equal(b.at(name)));
}

TEST_CASE("a program with its own loop gets the rows of all its windows") {
  TempDir dir;
  auto config = monitored(dir, {{"every", 1}, {"what", ConfigNode::list({"gradients"})}, {"where", ConfigNode::list({"head"})}});
  {
    Trainer trainer(config, with_monitor());
    Batch batch;
    batch.set("input", at::rand({4, 3, 32, 32}));
    batch.set("target", at::zeros({4}, at::kLong));
    batch.size = 4;
    batch.weight = 4;
    for (int i = 0; i < 3; ++i) trainer.train_step({batch});
  }
  CHECK(attempts_in(dir / "monitor.csv") == std::set<int64_t>{0, 1, 2});
  for (const auto& [name, row] : rows_of(dir / "monitor.csv", "gradients", 2)) CHECK(has(name, "head"));
}

TEST_CASE("contradictions of the section are errors by name") {
  TempDir dir;
  auto config = monitored(dir, ConfigNode::map());
  config.sections["dump"] = {{"dir", (dir / "dump").string()}};
  CHECK(has(error_of([&] { Trainer(config, with_monitor()).fit(); }).what(), "monitor.what"));
  const auto refused = [&](const std::string& yaml) {
    return std::string(error_of([&] { bind_config(parse_yaml(yaml, "a.yaml"), with_monitor()); }).what());
  };
  CHECK(has(refused("monitor: {every: 0}"), "monitor.every"));
  CHECK(has(refused("monitor: {what: [gradient]}"), "gradients"));
  CHECK(has(refused("monitor: {band: 1}"), "monitor.band"));
}
