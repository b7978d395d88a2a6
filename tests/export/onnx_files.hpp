// Exported files, which onnxruntime runs.
#pragma once

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "export/onnxruntime.hpp"
#include "testing.hpp"

namespace npu_train::testing {

constexpr const char* kNoOnnxruntime = "there is no onnxruntime (scripts/setup --dev, or NPU_TRAIN_ONNX_PYTHON)";

/// Returns whether onnxruntime is installed, for only_if. Selects the Python that scripts/setup --dev installs, unless
/// NPU_TRAIN_ONNX_PYTHON names another one.
inline bool has_onnxruntime() {
  static const bool has = [] {
    const auto own = std::filesystem::path(NPU_TRAIN_SOURCE_DIR) / ".venv/onnx/bin/python";
    if (std::filesystem::exists(own)) ::setenv("NPU_TRAIN_ONNX_PYTHON", own.c_str(), /*overwrite=*/0);
    try {
      return !onnx::run_onnxruntime({}).version.empty();
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Device) throw;
      return false;
    }
  }();
  return has;
}

/// Returns the largest difference, relative to the largest element; infinite if the shapes or types differ.
inline double largest_difference(const at::Tensor& expected, const at::Tensor& given) {
  if (expected.sizes() != given.sizes() || expected.scalar_type() != given.scalar_type()) return kInf;
  return ((expected - given).abs().max() / expected.abs().max().clamp_min(1e-3)).item<double>();
}

/// The files of a test case. One process runs them all, because its start takes longer than most files.
class OnnxFiles {
 public:
  void add(const std::string& name, const std::filesystem::path& file, const Batch& inputs, const Outputs& expected, double tolerance) {
    runs_.push_back({.file = file, .inputs = inputs});
    expected_.push_back({name, expected, tolerance});
  }

  /// Checks that each output of each file is near the expected one.
  void check() const {
    const auto results = onnx::run_onnxruntime(runs_);
    REQUIRE(results.files.size() == expected_.size());
    for (size_t i = 0; i < expected_.size(); ++i) {
      CAPTURE(expected_[i].name);
      CHECK(results.files[i].error == "");
      if (!results.files[i].error.empty()) continue;
      for (const auto& [output, value] : expected_[i].outputs.fields()) {
        const auto& given = results.files[i].outputs.at(output);
        const auto found = c10::str(given.toString(), " ", given.sizes());
        CAPTURE(found);
        CHECK(largest_difference(value, given) < expected_[i].tolerance);
      }
    }
  }

 private:
  struct Expected {
    std::string name;
    Outputs outputs;
    double tolerance;
  };
  std::vector<onnx::FileRun> runs_;
  std::vector<Expected> expected_;
};

}  // namespace npu_train::testing
