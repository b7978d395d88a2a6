#include "testing.hpp"

#include <fstream>

#include "nets.hpp"
#include "npu_train/export/onnx.hpp"
#include "npu_train/export/onnx_check.hpp"
#include "npu_train/io/file.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// A linear layer of one weight, and its file.
struct Exported {
  explicit Exported(const OnnxOptions& options = {}) {
    layer->weight.data().fill_(2);
    model = model_of([layer = layer](const Batch& batch) mutable { return Outputs(layer->forward(batch.at("x"))); }, layer.ptr());
    written = export_onnx(model, batch_of({at::randn({4, 3})}), path, options);
  }
  TempDir dir;
  std::filesystem::path path = dir / "m.onnx";
  torch::nn::Linear layer{3, 2};
  Model model;
  OnnxExport written;
};

const Batch kRows = batch_of({at::arange(12, at::kFloat).view({4, 3})});

void overwrite(const std::filesystem::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

}  // namespace

TEST_CASE("a correct file agrees, and one whose weights are others does not") {
  Exported e;
  for (const auto& comparison : check_onnx(e.path, e.model, kRows, kOnnxTolerance)) {
    CAPTURE(comparison.by);
    CHECK(comparison.agrees());
    CHECK(comparison.difference < 1e-6);
  }
  e.layer->weight.data()[0][0] = 2.01;
  const auto changed = check_onnx(e.path, e.model, kRows, kOnnxTolerance);
  CHECK(changed[0].by == "npu_train");
  CHECK_FALSE(changed[0].agrees());
  CHECK(changed[0].difference > 1e-4);
  e.layer->weight.data().fill_(kNaN);
  CHECK(check_onnx(e.path, e.model, kRows, kOnnxTolerance)[0].difference == kInf);
}

TEST_CASE("the check leaves the module in its mode") {
  const Exported e;
  e.model.module->train();
  CHECK(check_onnx(e.path, e.model, kRows, kOnnxTolerance)[0].agrees());
  CHECK(e.model.module->is_training());
}

TEST_CASE("files that are damaged, of another kind, or lack their weights are errors of data") {
  const Exported e({.external_above = 0});
  const auto whole = read_file(e.path, 1 << 20);
  const auto refused = [&](const std::string& bytes) {
    overwrite(e.path, bytes);
    const auto error = error_of([&] { run_onnx(e.path, kRows); });
    CHECK(error.kind() == ErrorKind::Data);
    return std::string(error.what());
  };
  CHECK(has(refused(""), "contains no graph"));
  CHECK(has(refused("not a model"), "m.onnx"));
  for (const size_t end : {size_t{3}, whole.size() / 2, whole.size() - 1}) CHECK(has(refused(whole.substr(0, end)), "m.onnx"));
  auto unknown = whole;
  unknown.replace(unknown.find("\x22\x04Gemm") + 2, 4, "Germ");  // the field op_type
  CHECK(has(refused(unknown), "is the operator Germ, which is not supported"));
  overwrite(e.path, whole);
  CHECK(error_of([&] { run_onnx(e.path, batch_of({at::ones({4, 2})})); }).kind() == ErrorKind::Usage);
  CHECK(error_of([&] { run_onnx(e.path, Batch()); }).kind() == ErrorKind::Usage);
  CHECK(error_of([&] { run_onnx(e.dir / "absent.onnx", kRows); }).kind() == ErrorKind::Data);
}

TEST_CASE("fp16 files are computed in fp32 and rounded after each operator") {
  const Exported e({.dtype = at::kHalf});
  const auto given = run_onnx(e.path, kRows).first();
  CHECK((given.scalar_type() == at::kFloat));
  const at::NoGradGuard no_grad;
  const auto rounded = [](const at::Tensor& t) { return t.to(at::kHalf).to(at::kFloat); };
  CHECK(at::equal(given, rounded(kRows.at("x").mm(e.layer->weight.t()) + rounded(e.layer->bias))));
}
