#include "testing.hpp"

#include <fstream>

#include "environment_variable.hpp"
#include "nets.hpp"
#include "npu_train/export/onnx.hpp"
#include "npu_train/export/onnx_check.hpp"
#include "only_if.hpp"
#include "onnx_files.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// A linear layer with one weight, and its file.
struct Exported {
  Exported() {
    layer->weight.data().fill_(2);
    model = model_of([layer = layer](const Batch& batch) mutable { return Outputs(layer->forward(batch.at("x"))); }, layer.ptr());
    export_onnx(model, batch_of({at::randn({4, 3})}), path);
  }
  FileComparison checked() const { return check_onnx(path, model, rows, kOnnxTolerance); }
  const Batch rows = batch_of({at::arange(12, at::kFloat).view({4, 3}), at::ones({4})});  // the file does not read the second field
  TempDir dir;
  std::filesystem::path path = dir / "m.onnx";
  torch::nn::Linear layer{3, 2};
  Model model;
};

}  // namespace

TEST_CASE("a correct file agrees, in any mode of the module, which keeps it" * only_if(has_onnxruntime(), kNoOnnxruntime)) {
  const Exported e;
  e.model.module->train();
  const auto found = e.checked();
  CHECK(has(found.by, "onnxruntime 1."));
  CHECK(found.agrees());
  CHECK(found.difference < 1e-6);
  CHECK(e.model.module->is_training());
}

TEST_CASE("a file whose weights are others differs" * only_if(has_onnxruntime(), kNoOnnxruntime)) {
  const Exported e;
  e.layer->weight.data()[0][0] = 2.01;
  const auto changed = e.checked();
  CHECK_FALSE(changed.agrees());
  CHECK(changed.difference > 1e-4);
  CHECK(changed.difference < 1e-2);
  e.layer->weight.data().fill_(kNaN);
  CHECK(e.checked().difference == kInf);
}

TEST_CASE("a file that onnxruntime cannot run is an error of data" * only_if(has_onnxruntime(), kNoOnnxruntime)) {
  const Exported e;
  std::ofstream(e.path, std::ios::binary) << "not a model";
  const auto error = error_of([&] { e.checked(); });
  CHECK(error.kind() == ErrorKind::Data);
  CHECK(has(error.what(), "onnxruntime cannot run"));
  CHECK(has(error.what(), "m.onnx"));
}

TEST_CASE("a file is not checked without Python, and by one without onnxruntime") {
  const Exported e;
  const auto not_checked = [&](const std::filesystem::path& python) {
    const EnvironmentVariable named("NPU_TRAIN_ONNX_PYTHON", python);
    const auto error = error_of([&] { e.checked(); });
    CHECK(error.kind() == ErrorKind::Device);
    CHECK(has(error.what(), "[check_onnx] not checked: "));
    CHECK(has(error.what(), "pip install onnxruntime"));
    return std::string(error.what());
  };
  CHECK(has(not_checked(e.dir / "absent"), "there is no program " + (e.dir / "absent").string()));
  std::ofstream(e.dir / "python") << "#!/bin/sh\necho \"No module named 'onnxruntime'\"\nexit 3\n";
  std::filesystem::permissions(e.dir / "python", std::filesystem::perms::owner_all);
  CHECK(has(not_checked(e.dir / "python"), "python cannot import onnxruntime: No module named 'onnxruntime'; hint: "));
}

TEST_CASE("a Python that ends early is an error of data") {
  const Exported e;
  const EnvironmentVariable named("NPU_TRAIN_ONNX_PYTHON", "/bin/false");
  const auto error = error_of([&] { e.checked(); });
  CHECK(error.kind() == ErrorKind::Data);
  CHECK(has(error.what(), "onnxruntime has ended early"));
}
