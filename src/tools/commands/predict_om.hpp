// npu_tool predict --om: runs an offline model of Ascend's compiler. Class names and image preparation come from several sources.
#pragma once

#include <ATen/core/Tensor.h>

#include <CLI/CLI.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/predictor.hpp"
#include "tools/commands/console/console.hpp"

namespace npu_train::cli {

struct OfflineArguments {
  std::string file;               // m.om
  std::string classes;            // a file with one name per line
  std::vector<double> mean, std;  // per channel, for values in [0, 1]

  bool given() const { return !file.empty(); }
};

void add_offline_options(CLI::App& sub, OfflineArguments& args);

/// Logits [images, classes], the class names, and the meaning of the outputs, which is OneClass without a checkpoint.
using OfflineLogits = std::tuple<at::Tensor, std::vector<std::string>, OutputMeaning>;

/// Returns the logits of the images. Calls `bad` for each unreadable image, whose logits are NaN. Normalisation, transforms and names are
/// those of `checkpoint` if given; otherwise those of m.onnx next to m.om, as npu_tool export writes it; otherwise those of the options,
/// with the transforms of ImageNet. Error(Usage) for options that contradict each other or the model.
OfflineLogits offline_logits(const OfflineArguments& args, const std::string& checkpoint, const std::string& device,
                             const std::vector<std::string>& images, const OfflinePredictor::OnBadImage& bad, const WorkProgress& progress,
                             const Parts& parts);

}  // namespace npu_train::cli
