// npu_tool predict --om: an offline model of Ascend's compiler, and where its classes and the preparation of its images come from.
#pragma once

#include <ATen/core/Tensor.h>

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/engine/offline_predictor.hpp"
#include "npu_train/engine/parts.hpp"

namespace npu_train::cli {

struct OfflineArguments {
  std::string file;               // m.om
  std::string classes;            // a file with a name a line
  std::vector<double> mean, std;  // by channel, for values in [0, 1]

  bool given() const { return !file.empty(); }
};

void add_offline_options(CLI::App& sub, OfflineArguments& args);

using OfflineLogits = std::pair<at::Tensor, std::vector<std::string>>;  // [images, classes], and the names of the classes

/// The logits of the images; `bad` is called for each that cannot be read, whose logits are NaN. The normalisation, the transforms and the
/// names are those of `checkpoint`, if one is given; of m.onnx next to m.om, as npu_tool export writes it; or those of the options, with
/// the transforms of ImageNet. Error(Usage) for options that contradict each other or the model.
OfflineLogits offline_logits(const OfflineArguments& args, const std::string& checkpoint, const std::string& device,
                             const std::vector<std::string>& images, const OfflinePredictor::OnBadImage& bad, const Parts& parts);

}  // namespace npu_train::cli
