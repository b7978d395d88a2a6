#include "npu_train/export/onnx_check.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/max.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "export/compare.hpp"
#include "export/onnxruntime.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/nn/evaluation_mode.hpp"

namespace npu_train {
namespace {

double difference_of(const at::Tensor& expected, const at::Tensor& given) {
  const auto infinite = std::numeric_limits<double>::infinity();
  if (!expected.sizes().equals(given.sizes())) return infinite;
  if (expected.numel() == 0) return 0;
  const at::Tensor a = expected.to(at::kCPU, at::kDouble), b = given.to(at::kDouble);
  const auto largest = a.abs().max().item<double>(), apart = (a - b).abs().max().item<double>();
  if (apart == 0) return 0;
  return std::isnan(apart) || largest == 0 ? infinite : apart / largest;
}

}  // namespace

FileComparison onnx::compared(const std::string& by, const Outputs& expected, const Outputs& given, double tolerance) {
  FileComparison out{.by = by, .difference = 0, .tolerance = tolerance};
  for (const auto& [name, value] : expected.fields()) out.difference = std::max(out.difference, difference_of(value, given.at(name)));
  return out;
}

FileComparison check_onnx(const std::filesystem::path& file, const Model& model, const Batch& inputs, double tolerance) {
  return translated("check_onnx", [&] {
    const EvaluationMode evaluation(*model.module);
    const at::NoGradGuard no_grad;
    const auto expected = model.forward(inputs.map([](const at::Tensor& t) { return t.clone(); }));
    const auto results = onnx::run_onnxruntime({{.file = file, .inputs = inputs}});
    const auto& theirs = results.files.at(0);
    check(theirs.error.empty(), ErrorKind::Data, "check_onnx", "onnxruntime cannot run ", file.string(), ": ", theirs.error);
    return onnx::compared("onnxruntime " + results.version, expected, theirs.outputs, tolerance);
  });
}

}  // namespace npu_train
