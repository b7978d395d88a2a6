// Tests `trainer.profiler` in a run.
#include "testing.hpp"

#include "npu_train/tools/analyze/profiled_fit.hpp"

#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

RunConfig profiled_run(const fs::path& dir, const std::string& profiler) {
  RunConfig c{.device = "cpu", .precision = "32-true"};
  c.model = {.name = "resnet18", .options = {{"stem", "small"}}};
  c.data = {.name = "generated", .options = {{"train_size", 24}, {"val_size", 8}, {"batch_size", 4}, {"num_workers", "0"}}};
  c.trainer = {.max_epochs = 1, .threads = 1, .profiler = profiler};
  c.output = {.dir = dir.string()};
  return c;
}

Parts with_profiler() {
  auto parts = builtin_parts();
  add_profiler(parts);
  return parts;
}

std::vector<std::string> names_in(const Json& rows, const char* key) {
  std::vector<std::string> out;
  for (const auto& row : rows.items("rows")) out.push_back(row.at(key, "row").text(key));
  return out;
}

bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

// This case comes first: a process that has run a backward pass accepts no further kind of device.
TEST_CASE("chrome on a device sees the operators of backward passes, which run in a thread of autograd's own") {
  TempDir dir;
  auto config = profiled_run(dir.path(), "chrome");
  config.device = "sim_npu";
  config.sim_npu.unsupported_ops = "ignore";
  config.trainer.max_steps = 2;
  const auto result = Trainer(config, with_profiler()).fit();
  const auto profile = load_json(fs::path(result.run_dir) / "profile/profile.json");
  std::vector<std::string> backward, layers;
  for (const auto& row : profile.at("operators", "profile").items("operators"))
    if (row.at("phase", "row").text("phase") == "backward") backward.push_back(row.at("name", "row").text("name"));
  for (const auto& row : profile.at("layers", "profile").items("layers"))
    if (row.at("phase", "row").text("phase") == "backward") layers.push_back(row.at("name", "row").text("name"));
  CHECK(backward.size() > 5);
  CHECK(holds(layers, "layer1.0.conv1"));
  const auto text = read_file(fs::path(result.run_dir) / "profile/trace.json", 1 << 30);
  CHECK(has(text, "operators in autograd's thread"));
}

TEST_CASE("chrome of a run of one step traces that one") {
  TempDir dir;
  auto config = profiled_run(dir.path(), "chrome");
  config.trainer.max_steps = 1;
  const auto result = Trainer(config, with_profiler()).fit();
  const auto profile = load_json(fs::path(result.run_dir) / "profile/profile.json");
  CHECK(holds(names_in(profile.at("layers", "profile"), "name"), "layer1.0.conv1"));
  CHECK(fs::exists(fs::path(result.run_dir) / "profile/trace.json"));
}

TEST_CASE("a run without a profiler writes no profile, and simple writes the phases of fit()") {
  TempDir dir;
  const auto plain = Trainer(profiled_run(dir / "a", "none"), with_profiler()).fit();
  CHECK(!fs::exists(fs::path(plain.run_dir) / "profile"));
  const auto result = Trainer(profiled_run(dir / "b", "simple"), with_profiler()).fit();
  const auto profile = load_json(fs::path(result.run_dir) / "profile/profile.json");
  CHECK(profile.at("windows", "profile").integer("windows") == 5);
  const auto phases = names_in(profile.at("phases", "profile"), "phase");
  for (const char* name :
       {"data_wait", "transfer", "forward", "backward", "unscale", "optimizer", "callbacks", "validation", "checkpoint"}) {
    CAPTURE(name);
    CHECK(holds(phases, name));
  }
  CHECK(fs::exists(fs::path(result.run_dir) / "profile/profile.html"));
  CHECK(!fs::exists(fs::path(result.run_dir) / "profile/trace.json"));
}

TEST_CASE("chrome traces three steps, changes no bit, and a run may be resumed with another profiler") {
  TempDir dir;
  const auto plain = Trainer(profiled_run(dir / "a", "none"), with_profiler()).fit();
  const auto traced = Trainer(profiled_run(dir / "b", "chrome"), with_profiler()).fit();
  CHECK(plain.history.at(0).train == traced.history.at(0).train);
  CHECK(plain.history.at(0).val == traced.history.at(0).val);
  const auto profile = load_json(fs::path(traced.run_dir) / "profile/profile.json");
  CHECK(holds(names_in(profile.at("layers", "profile"), "name"), "layer1.0.conv1"));
  const auto trace = load_json(fs::path(traced.run_dir) / "profile/trace.json");
  CHECK(trace.at("traceEvents", "trace").items("events").size() > 300);

  auto more = profiled_run(dir / "b", "simple");
  more.trainer.max_epochs = 2;
  Trainer trainer(more, with_profiler());
  trainer.resume("last");
  CHECK(trainer.fit().global_step == 12);
}

TEST_CASE("a program without the profiler says which library has it") {
  const auto text = std::string(error_of([] { Trainer(profiled_run("", "simple")); }).what());
  CHECK_MESSAGE(has(text, "trainer.profiler: this program has no profiler"), text);
  CHECK_MESSAGE(has(text, "npu_train::tools"), text);
}

TEST_CASE("chrome next to a dump is refused, and a fit of no folder only logs") {
  TempDir dir;
  struct DumpLike {
    static const ConfigTable<DumpLike>& config_table() {
      static const ConfigTable<DumpLike> table("dump");
      return table;
    }
  };
  auto parts = with_profiler();
  parts.observers.add_section<DumpLike>("dump", "in place of the dump", [](const DumpLike&) { return std::make_unique<RunObserver>(); });
  auto config = profiled_run(dir.path(), "chrome");
  config.sections["dump"] = ConfigNode::map();
  CHECK(has(error_of([&] { Trainer(config, parts).fit(); }).what(), "trainer.profiler"));
  auto bare = profiled_run("", "chrome");
  bare.output.dir = "";
  CHECK(Trainer(bare, with_profiler()).fit().global_step == 6);
}
