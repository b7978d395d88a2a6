#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/loggers/loggers.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/logger.hpp"
#include "npu_train/io/event_writer.hpp"

namespace npu_train::detail {
namespace {

class TensorBoardLogger final : public Logger {
 public:
  std::string what() const override { return "the TensorBoard events"; }

  void begin(const LoggedRun& run) override {
    folder_ = run.dir;
    from_ = run.items_from;
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

  bool log_text(const std::string& name, const std::string& text, int64_t step) override {
    items().add_text(name, text, step);
    return true;
  }

  bool log_image(const std::string& name, const LoggedImage& image, int64_t step) override {
    items().add_image(name, image.png, image.height, image.width, image.channels, step);
    return true;
  }

  bool log_histogram(const std::string& name, const LoggedHistogram& h, int64_t step) override {
    if (h.count > 0) items().add_histogram(name, {h.min, h.max, h.count, h.sum, h.sum_of_squares}, h.limits, h.counts, step);
    if (h.not_finite > 0) items().add_scalars({{name + "/not_finite", static_cast<double>(h.not_finite)}}, step);
    return true;
  }

 private:
  // Returns the writer for texts, images and histograms. A resumed run logs the values of its first step again, but not these items. So
  // items have a file of their own, in which the session begins one step later.
  EventWriter& items() {
    if (!items_) {
      items_.emplace(folder_ + "/items");
      if (from_) items_->start_session(*from_);
    }
    return *items_;
  }

  // Texts in messages of Protocol Buffers must be UTF-8: a single invalid byte, for example in a path, would hide the settings of all runs.
  static std::vector<std::pair<std::string, HyperParameter>> settings_of(const ConfigNode& config) {
    std::vector<std::pair<std::string, HyperParameter>> out;
    for (const auto& [key, value] : flat_settings(config)) {
      const auto name = visible_lines(key);
      const auto number = value.is_scalar() && !value.quoted() ? decimal_number(value.scalar()) : std::nullopt;
      if (number && std::isfinite(*number))
        out.emplace_back(name, *number);
      else if (value.is_scalar() && !value.quoted() && (value.scalar() == "true" || value.scalar() == "false"))
        out.emplace_back(name, value.scalar() == "true");
      else
        out.emplace_back(name, visible_lines(value.is_scalar() ? value.scalar() : to_yaml_line(value)));
    }
    return out;
  }

  std::string folder_;
  std::optional<int64_t> from_;  // first step of items in a resumed run
  std::optional<EventWriter> events_, items_;
};

}  // namespace

std::shared_ptr<Logger> tensorboard_logger() { return std::make_shared<TensorBoardLogger>(); }

}  // namespace npu_train::detail
