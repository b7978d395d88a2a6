#include "npu_train/export/onnx_check.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/max.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "export/compare.hpp"
#include "export/interpreter.hpp"
#include "export/onnx_reader.hpp"
#include "export/onnxruntime.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/nn/evaluation_mode.hpp"

namespace npu_train {
namespace {

// Returns the fields that the graph reads.
Batch inputs_of(const onnx::OnnxModel& model, const Batch& batch) {
  Batch out;
  for (const auto& input : model.inputs) out.set(input.name, batch.at(input.name));
  return out;
}

Outputs run(const onnx::OnnxModel& model, const Batch& inputs) {
  std::map<std::string, at::Tensor> given;
  for (const auto& [name, value] : inputs.fields()) given[name] = value;
  return onnx::run_model(model, given);
}

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

Outputs run_onnx(const std::filesystem::path& file, const Batch& inputs) {
  return translated("run_onnx", [&] { return run(onnx::read_onnx(file), inputs); });
}

std::vector<FileComparison> check_onnx(const std::filesystem::path& file, const Model& model, const Batch& inputs, double tolerance) {
  return translated("check_onnx", [&] {
    const EvaluationMode evaluation(*model.module);
    const at::NoGradGuard no_grad;
    const auto expected = model.forward(inputs.map([](const at::Tensor& t) { return t.clone(); }));
    const auto written = onnx::read_onnx(file);
    std::vector<FileComparison> out{onnx::compared("npu_train", expected, run(written, inputs), tolerance)};
    if (const auto theirs = onnx::run_onnxruntime(file, inputs_of(written, inputs)))
      out.push_back(onnx::compared("onnxruntime " + theirs->first, expected, theirs->second, tolerance));
    return out;
  });
}

}  // namespace npu_train
