// The loggers of the library.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/engine/parts.hpp"

namespace npu_train::detail {

struct MlflowOptions {
  std::string dir = "mlruns";
  std::string experiment{};
  std::string run_name{};
  static const ConfigTable<MlflowOptions>& config_table();
};

std::shared_ptr<Logger> csv_logger();
std::shared_ptr<Logger> tensorboard_logger();
std::shared_ptr<Logger> mlflow_logger(const MlflowOptions& options);

void add_builtin_loggers(LoggerRegistry& loggers);

/// Returns the plain values of a configuration by their full keys ("optimizer.lr"); a list is one value: its YAML on one line.
std::vector<std::pair<std::string, ConfigNode>> flat_settings(const ConfigNode& config);

}  // namespace npu_train::detail
