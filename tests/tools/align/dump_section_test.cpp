#include "testing.hpp"

#include "npu_train/tools/align/dump_section.hpp"

#include "engine/short_run.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

Parts with_dump() {
  auto parts = builtin_parts();
  add_dump(parts);
  return parts;
}

std::string refused(const std::string& yaml) {
  return error_of([&] { bind_config(parse_yaml(yaml, "a.yaml"), with_dump()); }).what();
}

}  // namespace

TEST_CASE("a run with the section dumps its steps, with the facts that decide rounding") {
  TempDir dir;
  auto config = short_run("bf16-mixed");
  config.cpu_low_precision = "emulated";
  config.trainer.max_steps = 2;
  config.trainer.gradient_clip_val = 0.5;
  config.sections["dump"] = {{"dir", (dir / "d").string()}, {"steps", ConfigNode::list({"1"})}};
  Trainer(config, with_dump()).fit();
  CHECK_FALSE(fs::exists(dir / "d/step0"));
  const auto dump = load_json(dir / "d/step1/rank0/dump.json");
  const auto text = dump.dump(0);
  for (const char* fact : {"\"cpu\"", "bf16-mixed", "emulated", "norm 0.5", "vit_tiny_cifar10"}) CHECK_MESSAGE(has(text, fact), fact);
  CHECK(has(text, "Module.conv_proj.Conv2d.forward.0"));
}

TEST_CASE("without a folder of its own a dump is in the run's") {
  TempDir dir;
  auto config = short_run();
  config.output.dir = dir.path().string();
  config.trainer.max_steps = 1;
  config.sections["dump"] = ConfigNode::map();
  const auto result = Trainer(config, with_dump()).fit();
  CHECK(fs::exists(fs::path(result.run_dir) / "dump/step0/rank0/dump.json"));
  const auto written = bind_config(load_yaml((fs::path(result.run_dir) / "config.yaml").string()), with_dump());
  CHECK(written.sections.count("dump") == 1);
}

TEST_CASE("errors in the section are found before anything is opened") {
  CHECK(has(refused("dump: {level: L0}"), "the name here is module"));
  CHECK(has(refused("dump: {sample: 0}"), "dump.sample"));
  const auto text = refused("dump: {steps: [6-4]}");
  CHECK_MESSAGE(has(text, "dump.steps: '6-4' ends before its start"), text);
  auto config = short_run();
  config.sections["dump"] = {{"sample", 0.0}};
  CHECK(has(error_of([&] { Trainer(config, with_dump()); }).what(), "dump.sample"));
}

TEST_CASE("the config.json of msprobe selects what it selects there") {
  TempDir dir;
  const auto file = dir / "config.json";
  const auto section = "dump: {config: " + file.string() + "}";
  // the keys of the file that msprobe 26.2 installs, with values
  write_file_atomic(file, R"({"task": "statistics", "dump_path": ")" + (dir / "d").string() + R"(", "rank": [], "step": [1, "3-4"],
    "level": "L1", "extra_info": true, "async_dump": false,
    "statistics": {"scope": [], "list": ["conv2d"], "data_mode": ["all"], "summary_mode": "md5"},
    "tensor": {"scope": [], "list": ["other"], "data_mode": ["all"]},
    "acc_check": {"white_list": [], "black_list": [], "error_data_path": "./"}})");
  auto config = short_run();
  config.trainer.max_steps = 2;
  config.sections["dump"] = {{"config", file.string()}};
  Trainer(config, with_dump()).fit();
  CHECK_FALSE(fs::exists(dir / "d/step0"));
  const auto dump = load_json(dir / "d/step1/rank0/dump.json");
  const auto text = dump.dump(0);
  CHECK(dump.at("level", "").text("") == "L1");
  CHECK(has(text, "Functional.conv2d.0.forward"));
  CHECK_FALSE(has(text, "linear"));
  CHECK(has(text, "\"md5\""));

  // given keys have priority, even with the default value
  write_file_atomic(file, R"({"level": "L1", "task": "tensor", "step": null, "statistics": null, "tensor": {"list": null}})");
  CHECK(has(refused("dump: {level: module, config: " + file.string() + "}"), "level: the section dump of the configuration has another"));
  CHECK(has(refused("dump: {task: statistics, config: " + file.string() + "}"), "task: the section dump"));
  CHECK_NOTHROW(bind_config(parse_yaml("dump: {level: op, steps: [1], list: [a], config: " + file.string() + "}", "a.yaml"), with_dump()));
  write_file_atomic(file, R"({"level": null})");
  CHECK_NOTHROW(bind_config(parse_yaml("dump: {level: module, config: " + file.string() + "}", "a.yaml"), with_dump()));
  // files of earlier releases
  for (const auto* task : {"statistics", "tensor", "overflow_check"}) {
    write_file_atomic(file, R"({"task": ")" + std::string(task) + R"(", "dump_path": "./dump_path", "rank": [], "step": [], "level": "L1",
      "enable_dataloader": false,
      "tensor": {"scope": [], "list": [], "data_mode": ["all"], "file_format": "npy", "online_run_ut": false, "nfs_path": "", "host": "",
                 "port": "", "tls_path": ""},
      "statistics": {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"},
      "overflow_check": {"overflow_nums": 1, "check_mode": "all"},
      "run_ut": {"white_list": [], "black_list": [], "error_data_path": "./"}})");
    CHECK_NOTHROW(bind_config(parse_yaml(section, "a.yaml"), with_dump()));
  }

  write_file_atomic(file, R"({"step": [2]})");
  CHECK(has(refused("dump: {steps: [1], config: " + file.string() + "}"), "step: the section dump of the configuration has another value"));
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"level": "L2"})", "level: 'L2' has no counterpart"},
      {R"({"task": "acc_check"})", "task: 'acc_check' has no counterpart"},
      {R"({"tasks": "tensor"})", "tasks: unknown"},
      {R"({"precision": "low"})", "precision: \"low\" has no counterpart"},
      {R"({"load": {"path": "x"}})", "load: "},
      {R"({"enable_dataloader": true})",
       "enable_dataloader: true has no counterpart in a dump of npu_train; allowed: no such key, or false"},
      {R"({"task": "overflow_check", "overflow_check": {"overflow_nums": 3}})", "overflow_check.overflow_nums: 3 has no counterpart"},
      {R"({"task": "tensor", "tensor": {"file_format": "bin"}})", "tensor.file_format: 'bin' has no counterpart"},
      {R"({"task": "tensor", "tensor": {"online_run_ut": true}})", "tensor.online_run_ut"},
      {R"({"step": ["6-4"]})", "'6-4' ends before its start"},
      {R"({"rank": ["x"]})", "rank: 'x'; allowed"},
      {R"({"rank": 3})", "rank"},
      {R"x({"statistics": {"list": ["name-regex(a.*)"]}})x", "statistics.list"},
      {R"({"statistics": {"summary_mode": "xor"}})", "statistics.summary_mode: 'xor'"},
      {R"({"task": "tensor", "tensor": {"data_mode": ["inputs"]}})", "tensor.data_mode: 'inputs'; allowed"},
      {R"({"task": "tensor", "tensor": {"slice": [1]}})", "tensor.slice"},
      {"[]", "config.json"},
  };
  for (const auto& [content, words] : wrong) {
    write_file_atomic(file, content);
    const auto said = refused(section);
    CHECK_MESSAGE(has(said, words), said);
  }
  CHECK(has(refused("dump: {config: none.json}"), "none.json"));
}

TEST_CASE("a run keeps the values of msprobe's file, and continues without it") {
  TempDir dir;
  const auto file = dir / "config.json";
  write_file_atomic(file, R"({"task": "tensor", "level": "mix", "step": [1], "tensor": {"list": ["conv"], "file_format": "npy"}})");
  auto config = short_run();
  config.output.dir = dir.path().string();
  config.trainer.max_steps = 2;
  config.sections["dump"] = {{"config", file.string()}, {"seed", 3}};
  const auto run = fs::path(Trainer(config, with_dump()).fit().run_dir);
  fs::remove(file);
  auto written = bind_config(load_yaml((run / "config.yaml").string()), with_dump());
  const auto& dump = written.sections.at("dump");
  const auto text = [&](const char* key) { return dump.find(key)->scalar(); };
  CHECK(text("config") == "");
  CHECK(text("task") == "tensor");
  CHECK(text("level") == "mix");
  CHECK(text("format") == "npy");
  CHECK(text("seed") == "3");
  CHECK(dump.find("steps")->items().at(0).scalar() == "1");
  written.trainer.max_steps = 3;
  Trainer resumed(written, with_dump());
  REQUIRE(resumed.resume("auto") != "");
  CHECK(resumed.fit().global_step == 3);
}
