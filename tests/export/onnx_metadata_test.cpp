#include "testing.hpp"

#include "npu_train/export/onnx_metadata.hpp"

#include <fstream>

#include "export/onnx_reader.hpp"
#include "nets.hpp"
#include "npu_train/export/onnx.hpp"
#include "npu_train/io/file.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("the entries of a file, in order, with any characters") {
  const TempDir dir;
  const auto net = net_cases()[2];
  export_onnx(net.model, batch_of(net.inputs), dir / "m.onnx", {.metadata = {{"npu_train.classes", "cat\ndog: \"x\""}, {"empty", ""}}});
  const auto entries = onnx_metadata(dir / "m.onnx");
  REQUIRE(entries.size() == 3);
  CHECK(entries[0] == std::make_pair(std::string("npu_train.classes"), std::string("cat\ndog: \"x\"")));
  CHECK(entries[1].first == "empty");
  CHECK(entries[2].first == "npu_train.version");
}

TEST_CASE("files that are no ONNX models") {
  const TempDir dir;
  CHECK(error_of([&] { onnx_metadata(dir / "none.onnx"); }).kind() == ErrorKind::Data);
  std::ofstream(dir / "m.onnx") << "not a protocol buffer";
  const auto e = error_of([&] { onnx_metadata(dir / "m.onnx"); });
  CHECK(e.kind() == ErrorKind::Data);
  CHECK(has(e.what(), "is damaged, or is not an ONNX model"));
}

TEST_CASE("damaged files have entries or are errors of data, and name no data file but their own") {
  const TempDir dir;
  torch::nn::Linear layer(64, 4);  // its weight is large enough for a second file
  const auto model = model_of([=](const Batch& batch) mutable { return Outputs(layer(batch.at("x"))); }, layer.ptr());
  const auto path = dir / "m.onnx";
  const auto written = export_onnx(model, batch_of({at::randn({4, 64})}), path, {.external_above = 0, .metadata = {{"key", "value"}}});
  REQUIRE(onnx::data_files_of(path) == std::vector<std::filesystem::path>{written.data});
  const auto whole = read_file(path, 1 << 20);
  size_t refused = 0;
  const auto read = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    for (const auto& file : onnx::data_files_of(path)) {
      CHECK(file.parent_path() == dir.path());
      CHECK(has(file.filename().string(), "m.onnx."));
    }
    try {
      onnx_metadata(path);
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::Data);
      ++refused;
    }
  };
  for (size_t i = 0; i < whole.size(); ++i) {
    read(whole.substr(0, i));
    for (const char bit : {'\x01', '\x80'}) {
      auto damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ bit);
      read(damaged);
    }
  }
  CHECK(refused > whole.size() / 2);
}
