/// Compiles an ONNX file to an offline model (.om) of Ascend's CANN: the command line of its compiler ATC, and the configuration of AIPP,
/// which converts image bytes to network inputs on the chip. Based on CANN's documentation (ATC, AIPP configuration, CANN 8.0); not yet run
/// with CANN itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/export/onnx.hpp"

namespace npu_train {

struct AtcOptions {
  std::string soc{};                ///< chip, such as "Ascend910B1" or "310P3", or a series, as in AscendOperators
  std::vector<int64_t> batches{1};  ///< batch sizes that the offline model accepts
  /// Per-channel normalisation of images with values in [0, 1]; the offline model then accepts bytes (RGB888, or grey). Empty: the offline
  /// model accepts the inputs of the file.
  std::vector<double> mean{}, std{};
};

/// An ATC command line and its files, next to the model.
struct AtcJob {
  std::vector<std::string> command{};  ///< "atc" and its options
  std::filesystem::path script{};      ///< MODEL.atc.sh: the command as a shell script
  std::filesystem::path aipp{};        ///< MODEL.aipp.cfg; empty without normalisation
  std::filesystem::path output{};      ///< MODEL.om
  std::vector<std::string> remarks{};  ///< operators that are not native on the chip, according to device/operator_support.hpp
};

/// Writes the files for the exported model at `model`. Error(Usage) for an unknown chip, an opset above 18 (not accepted by ATC), free
/// sizes other than the batch, or a normalisation of inputs that are not images of 1 or 3 channels. Error(Checkpoint) if a file cannot be
/// written.
AtcJob write_atc_job(const std::filesystem::path& model, const OnnxExport& exported, const OnnxOptions& options, const AtcOptions& atc);

/// Runs the command. Returns false if there is no program `atc`. Error(Device), with the last lines of its output, if it fails or creates
/// no file.
bool run_atc(const AtcJob& job);

}  // namespace npu_train
