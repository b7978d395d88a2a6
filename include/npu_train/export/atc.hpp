/// From an ONNX file to an offline model (.om) of Ascend's CANN: the command of its compiler ATC, and the file for AIPP, which turns the
/// bytes of images into the inputs of the network on the chip. Written from CANN's documentation (ATC, AIPP configuration, CANN 8.0); not
/// run with CANN itself yet.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/export/onnx.hpp"

namespace npu_train {

struct AtcOptions {
  std::string soc{};                ///< "Ascend910B1", "310P3", or a series as AscendOperators accepts it
  std::vector<int64_t> batches{1};  ///< batch sizes that the offline model accepts
  /// Normalisation of images by channel, for values in [0, 1]: the offline model then takes bytes (RGB888, or grey). Empty: it takes the
  /// inputs of the file.
  std::vector<double> mean{}, std{};
};

/// What to run, and the files for it next to the model.
struct AtcJob {
  std::vector<std::string> command{};  ///< "atc", its options
  std::filesystem::path script{};      ///< MODEL.atc.sh: the command as a shell script
  std::filesystem::path aipp{};        ///< MODEL.aipp.cfg; empty without normalisation
  std::filesystem::path output{};      ///< MODEL.om
  std::vector<std::string> remarks{};  ///< operators that are not native on the chip, by the tables of device/operator_support.hpp
};

/// Writes the files for the exported model at `model`. Error(Usage) for an unknown chip, an opset above 18, which ATC does not accept, free
/// sizes other than the batch, and a normalisation of other inputs than images of 1 or 3 channels. Error(Checkpoint) if a file cannot be
/// written.
AtcJob write_atc_job(const std::filesystem::path& model, const OnnxExport& exported, const OnnxOptions& options, const AtcOptions& atc);

/// Runs the command. False if there is no program `atc`; Error(Device), with its last lines, if it fails or leaves no output.
bool run_atc(const AtcJob& job);

}  // namespace npu_train
