#include "engine/loggers/loggers.hpp"

namespace npu_train::detail {
namespace {

void flatten(const ConfigNode& node, const std::string& path, std::vector<std::pair<std::string, ConfigNode>>& out) {
  if (!node.is_map() || node.members().empty()) {
    out.emplace_back(path, node.is_scalar() || node.is_null() ? node : ConfigNode(to_yaml_line(node)));
    return;
  }
  for (const auto& member : node.members()) flatten(member.value, path.empty() ? member.key : path + "." + member.key, out);
}

}  // namespace

std::vector<std::pair<std::string, ConfigNode>> flat_settings(const ConfigNode& config) {
  std::vector<std::pair<std::string, ConfigNode>> out;
  if (config.is_map() && !config.members().empty()) flatten(config, "", out);
  return out;
}

void add_builtin_loggers(LoggerRegistry& loggers) {
  loggers.add<NoOptions>("csv", "metrics.csv in the run's folder", [](const NoOptions&) { return csv_logger(); });
  loggers.add<NoOptions>("tensorboard", "events of TensorBoard in the run's folder", [](const NoOptions&) { return tensorboard_logger(); });
  loggers.add<MlflowOptions>("mlflow", "a run in a file store of MLflow",
                             [](const MlflowOptions& options) { return mlflow_logger(options); });
}

}  // namespace npu_train::detail
