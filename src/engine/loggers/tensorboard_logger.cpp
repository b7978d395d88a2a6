#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/loggers/loggers.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/logger.hpp"
#include "npu_train/io/event_writer.hpp"

namespace npu_train::detail {
namespace {

class TensorBoardLogger final : public Logger {
 public:
  std::string what() const override { return "the TensorBoard events"; }

  void begin(const LoggedRun& run) override {
    events_.emplace(run.dir);
    if (run.from) events_->start_session(*run.from);
    events_->add_hyperparameters(settings_of(run.config));
    for (const auto& row : run.kept) log(row);
  }

  void log(const LoggedRow& row) override {
    Scalars tags;
    for (const auto& [name, value] : row.values) tags.emplace_back(row.full_name(name), value);
    events_->add_scalars(tags, row.step);
  }

 private:
  static std::vector<std::pair<std::string, HyperParameter>> settings_of(const ConfigNode& config) {
    std::vector<std::pair<std::string, HyperParameter>> out;
    for (const auto& [name, value] : flat_settings(config)) {
      const auto number = value.is_scalar() && !value.quoted() ? decimal_number(value.scalar()) : std::nullopt;
      if (number && std::isfinite(*number))
        out.emplace_back(name, *number);
      else if (value.is_scalar() && !value.quoted() && (value.scalar() == "true" || value.scalar() == "false"))
        out.emplace_back(name, value.scalar() == "true");
      else
        out.emplace_back(name, value.is_scalar() ? value.scalar() : to_yaml_line(value));
    }
    return out;
  }

  std::optional<EventWriter> events_;
};

}  // namespace

std::shared_ptr<Logger> tensorboard_logger() { return std::make_shared<TensorBoardLogger>(); }

}  // namespace npu_train::detail
