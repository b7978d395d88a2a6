#include "testing.hpp"

#include "npu_train/export/onnx_metadata.hpp"

#include <fstream>

#include "nets.hpp"
#include "npu_train/export/onnx.hpp"

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
