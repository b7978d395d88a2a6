#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/io/file.hpp"
#include "npu_train/io/pickle.hpp"
#include "npu_train/tools/align/dump_reader.hpp"
#include "tools/align/crafted_dump.hpp"

using namespace npu_train;
using npu_train::testing::CraftedDump;
using npu_train::testing::error_of;
using npu_train::testing::has;
using npu_train::testing::TempDir;
namespace fs = std::filesystem;

namespace {

// A dump as msprobe 26 writes it, with Python's words for numbers that are not finite.
const char* const kMsprobe = R"({
 "task": "tensor", "level": "mix", "framework": "pytorch", "dump_data_dir": "/elsewhere/dump_tensor_data",
 "data": {
  "Functional.conv2d.0.forward": {"input_args": [
     {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], "Max": Infinity, "Min": -Infinity, "Mean": NaN, "Norm": 1.5,
      "requires_grad": false, "data_name": "Functional.conv2d.0.forward.input.0.pt"}, null, {"type": "int", "value": 3},
      [{"type": "torch.Tensor", "dtype": "torch.int64", "shape": [], "Max": 1, "Min": 1, "Mean": 1, "Norm": 1, "requires_grad": false}]],
     "input_kwargs": {"inplace": {"type": "bool", "value": false}}, "output": []},
  "Module.conv.Conv2d.forward.0": {"input_args": [], "input_kwargs": {},
     "parameters": {"weight": {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "Max": 1, "Min": 0, "Mean": 0.5, "Norm": 2,
     "requires_grad": true}}, "output": []},
  "Module.conv.Conv2d.parameters_grad.0": {"weight": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "Max": 1, "Min": 0,
     "Mean": 0.5, "Norm": 2, "requires_grad": false, "md5": "0a1b2c3d"}]},
  "Module.layer1.0.bn.BatchNorm2d.backward.12": {"input": [null], "output": []}}})";

void write(const fs::path& path, const std::string& text) {
  make_folder(path.parent_path());
  write_file_atomic(path, text);
}

DumpStep read_only_step(const TempDir& dir) { return read_dump_step(Dump::open(dir.path()).places().at(0)); }

}  // namespace

TEST_CASE("msprobe's names, nested arguments and words are understood") {
  TempDir dir;
  write(dir / "step3/proc4711/dump.json", kMsprobe);
  write(dir / "step3/proc4711/construct.json", R"({"Functional.conv2d.0.forward": "Module.conv.Conv2d.forward.0"})");
  const auto dump = Dump::open(dir.path());
  CHECK(dump.places().size() == 1);
  CHECK(dump.places()[0].step == 3);
  CHECK(dump.places()[0].rank == "rank0");
  const auto step = read_dump_step(dump.places()[0]);
  CHECK(step.complete);
  CHECK(step.calls.size() == 4);
  const auto& op = step.calls[0];
  CHECK(op.type == "conv2d");
  CHECK(op.layer == "conv2d.0");
  CHECK_FALSE(op.is_module);
  CHECK(op.parent == "Module.conv.Conv2d.forward.0");
  CHECK(op.items.size() == 5);
  CHECK(op.items[0].name == "Functional.conv2d.0.forward.input.0");
  CHECK(std::isinf(*op.items[0].max));
  CHECK(std::isnan(*op.items[0].mean));
  CHECK(op.items[1].value == "None");
  CHECK(op.items[2].value == "3");
  CHECK(op.items[3].name == "Functional.conv2d.0.forward.input.3.0");
  CHECK(op.items[4].name == "Functional.conv2d.0.forward.input.inplace");
  CHECK(step.calls[1].items[0].name == "Module.conv.Conv2d.forward.0.parameters.weight");
  CHECK(step.calls[2].direction == "parameters_grad");
  CHECK(step.calls[2].items[0].name == "Module.conv.Conv2d.parameters_grad.0.weight");
  CHECK(step.calls[2].items[0].crc == "0a1b2c3d");
  CHECK(step.calls[3].layer == "layer1.0.bn");
  CHECK(step.calls[3].number == 12);
  CHECK(step.calls[3].direction == "backward");
}

TEST_CASE("a dump cut at any byte is read up to there, or refused with its path") {
  TempDir dir;
  const std::string text = kMsprobe;
  size_t most = 0;
  for (size_t cut = 1; cut < text.size(); cut += 7) {
    write(dir / "step0/rank/dump.json", text.substr(0, cut));
    try {
      const auto step = read_only_step(dir);
      CHECK_FALSE(step.complete);
      CHECK(step.calls.size() >= most);
      most = step.calls.size();
    } catch (const Error& e) {
      CHECK(has(e.what(), "dump.json"));
    }
  }
  CHECK(most >= 3);
}

TEST_CASE("a call that was cut in its middle is not compared: its shape would be another one") {
  TempDir dir;
  for (const char* side : {"complete", "cut"}) {
    CraftedDump dump(dir / side);
    for (const char* layer : {"first", "second", "third"})
      dump.add("Module." + std::string(layer) + ".Linear.forward.0", CraftedDump::tensor("[16, 3, 32, 32]"),
               CraftedDump::tensor("[16, 3, 32, 32]"));
    dump.write();
  }
  const auto file = dir / "cut" / "step0/rank0/dump.json";
  const auto text = read_file(file, 1 << 20);
  size_t compared = 0;
  for (size_t n = text.size() - 1; n > text.find("\"data\"") + 10; --n) {
    write_file_atomic(file.string(), text.substr(0, n));
    const auto step = read_dump_step(Dump::open(dir / "cut").places().at(0));
    CAPTURE(text.substr(0, n));
    for (const auto& call : step.calls) {
      ++compared;
      CHECK(call.items.size() == 2);
      for (const auto& item : call.items) CHECK((item.shape == std::vector<int64_t>{16, 3, 32, 32}));
    }
  }
  CHECK(compared > 500);
}

TEST_CASE("no name of a file leads out of the dump") {
  TempDir dir;
  save_pt(dir / "secret.pt", at::ones({2}));
  for (const std::string name : {"../../../secret.pt", "/etc/passwd", "a/../../../../secret.pt", "link.pt"}) {
    write(
        dir / "dump/step0/rank/dump.json",
        R"({"data": {"Module.a.A.forward.0": {"output": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "data_name": ")" +
            name + "\"}]}}}");
    make_folder(dir / "dump/step0/rank/dump_tensor_data");
    std::error_code ignored;
    fs::create_symlink(dir / "secret.pt", dir / "dump/step0/rank/dump_tensor_data/link.pt", ignored);
    const auto step = read_dump_step(Dump::open(dir / "dump").places().at(0));
    const auto e = error_of([&] { step.file_of(step.calls.at(0).items.at(0)); });
    CHECK(e.kind() == ErrorKind::Data);
    CHECK(has(e.what(), "leads out"));
  }
}

TEST_CASE("two folders with the same step and rank are reported") {
  TempDir dir;
  write(dir / "step0/rank0/dump.json", kMsprobe);
  write(dir / "step00/rank0/dump.json", kMsprobe);
  const auto e = error_of([&] { Dump::open(dir.path()); });
  CHECK(e.kind() == ErrorKind::Data);
  CHECK(has(e.what(), "both are step 0 of rank0"));
}

TEST_CASE("a folder that is not a dump is reported as such") {
  TempDir dir;
  CHECK(has(error_of([&] { Dump::open(dir / "missing"); }).what(), "not a folder"));
  CHECK(has(error_of([&] { Dump::open(dir.path()); }).what(), "contains neither dump.json nor"));
  CHECK_FALSE(is_dump(dir.path()));
  for (const std::string text : {"[1, 2]", "{\"data\": 3}", "{\"task\": \"tensor\"}", "not json", "{\"data\": {}} trailing"}) {
    write(dir / "step0/rank/dump.json", text);
    CHECK(has(error_of([&] { read_only_step(dir); }).what(), "dump.json"));
  }
  write(dir / "step0/rank/dump.json",
        R"({"data": {"x": 1, "Module.a.A.forward.0": {"output": {"deep": [[[[{"type": 4}]]]]}, "input_args": 7}}})");
  CHECK(read_only_step(dir).calls.size() == 2);
  CHECK(is_dump(dir.path()));
}

TEST_CASE("a small file cannot make itself large in memory") {
  TempDir dir;
  const auto refused = [&](const std::string& calls) {
    write(dir / "step0/rank/dump.json", "{\"data\": {" + calls + "}}");
    const auto e = error_of([&] { read_only_step(dir); });
    CHECK(e.kind() == ErrorKind::Data);
    CHECK(has(e.what(), "dump.json"));
    return std::string(e.what());
  };
  const auto nulls = [](size_t n) {
    std::string out = "[null";
    for (size_t i = 1; i < n; ++i) out += ",null";
    return out + "]";
  };
  CHECK(
      has(refused(R"("a": {"output": )" + nulls(600'000) + R"(}, "b": {"output": )" + nulls(400'000) + "}"), "more than 1,000,000 calls"));
  // the total length of names is limited, since the name of each value contains the name of its call
  CHECK(has(refused("\"" + std::string(1'000'000, 'x') + R"(": {"output": )" + nulls(1000) + "}"), "names of more than 128"));
  write(dir / "step0/rank/dump.json", R"({"data": {"a": {"output": )" + nulls(100'000) + "}}}");
  CHECK(read_only_step(dir).calls.at(0).items.size() == 100'000);
}

TEST_CASE("no link leads out of the dump, and a folder may end with a slash") {
  TempDir dir;
  write(dir / "elsewhere/rank0/dump.json", kMsprobe);
  write(dir / "dump/step3/rank0/dump.json", kMsprobe);
  CHECK(Dump::open((dir / "dump/step3").string() + "/").places().at(0).step == 3);
  CHECK(is_dump(dir / "dump/step3/rank0/dump.json"));
  CHECK(Dump::open(dir / "dump/step3/rank0/dump.json").places().at(0).step == 3);
  write(dir / "dump/step3/rank0/stack.json", "{}");
  CHECK_FALSE(is_dump(dir / "dump/step3/rank0/stack.json"));
  CHECK(dump_around(dir / "dump/step3/rank0/stack.json") == dir / "dump/step3/rank0");
  CHECK(dump_around(dir / "dump/step3/stack.json").empty());
  fs::create_directory_symlink(dir / "dump", dir / "link");
  CHECK(Dump::open(dir / "link").places().at(0).step == 3);  // the given path itself may be a link
  fs::create_directory_symlink("step3", dir / "dump/step4");
  CHECK(Dump::open(dir / "dump").places().size() == 2);
  fs::create_directory_symlink(dir / "elsewhere", dir / "dump/step5");
  auto e = error_of([&] { Dump::open(dir / "dump"); });
  CHECK(e.kind() == ErrorKind::Data);
  CHECK(has(e.what(), "step5/rank0/dump.json: a link in its path leads out"));
  fs::remove(dir / "dump/step5");
  make_folder(dir / "dump/step5");
  fs::create_symlink(dir / "elsewhere/rank0/dump.json", dir / "dump/step5/dump.json");
  CHECK(has(error_of([&] { Dump::open(dir / "dump"); }).what(), "leads out"));
}
