// npu_tool predict --om: runs an offline model of Ascend's compiler, with class names and image preparation from several sources.
#pragma once

#include <ATen/core/Tensor.h>

#include <CLI/CLI.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "npu_train/engine/offline_predictor.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/predictor.hpp"

namespace npu_train::cli {

struct OfflineArguments {
  std::string file;               // m.om
  std::string classes;            // a file with one name per line
  std::vector<double> mean, std;  // per channel, for values in [0, 1]

  bool given() const { return !file.empty(); }
};

void add_offline_options(CLI::App& sub, OfflineArguments& args);

/// Logits [images, classes], the class names, and what the outputs mean; OneClass without a checkpoint.
using OfflineLogits = std::tuple<at::Tensor, std::vector<std::string>, OutputMeaning>;

/// Returns the logits of the images; calls `bad` for each unreadable one, whose logits are NaN. Normalisation, transforms and names are
/// from `checkpoint` if given; otherwise from m.onnx next to m.om, as npu_tool export writes it; otherwise from the options, with the
/// transforms of ImageNet. Error(Usage) for options that contradict each other or the model.
OfflineLogits offline_logits(const OfflineArguments& args, const std::string& checkpoint, const std::string& device,
                             const std::vector<std::string>& images, const OfflinePredictor::OnBadImage& bad, const Parts& parts);

}  // namespace npu_train::cli
