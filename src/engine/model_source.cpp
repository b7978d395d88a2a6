#include "npu_train/engine/model_source.hpp"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>
#include <utility>

#include "engine/config_rules.hpp"
#include "engine/saved_weights.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/model_tuning.hpp"
#include "npu_train/engine/weights.hpp"
#include "npu_train/nn/own_generator.hpp"
#include "npu_train/train/checkpoint_store.hpp"

namespace npu_train {
namespace {

constexpr const char* kSource = "model";

// Rejects weights that do not fit, and also a newly initialised head, because its predictions would be random.
void check_fit(const WeightsReport& report, ModelSource::Fit fit, const std::string& what) {
  if (fit == ModelSource::Fit::Reported) return;
  const auto hint = report.fitting_keys.empty() ? "the model and its number of classes must match the weights"
                                                : "the network of these weights has " + join(report.fitting_keys, " ");
  check(report.fits(), ErrorKind::Checkpoint, kSource, what, " does not match the model: ", report.str(), "; hint: ", hint);
  check(fit == ModelSource::Fit::FreshHead || report.fresh_head.empty(), ErrorKind::Checkpoint, kSource, what,
        " has no weights of this size for the head '", report.fresh_head, "', which would be random: ", report.str(), "; hint: ", hint);
}

SourcedModel of_checkpoint(const ModelSource& source, const Parts& parts) {
  const auto found = choose_checkpoint(source.checkpoint);
  SourcedModel out{.checkpoint = found.path, .why = found.why};
  out.run = detail::config_without_training(found.path, source.overrides, parts);
  out.model = make_model(out.run->model, parts, source.seed);
  auto file = read_weights(found.path, source.set.value_or(WeightSet::Auto));
  out.report = load_weights(out.model, file.tensors, {.head = {}, .strict = false});
  out.averages = file.averages;
  out.classes = std::move(file.classes);
  check_fit(out.report, source.fit, found.path);
  return out;
}

std::string weights_of(const ModelSource& source, const Model& model) {
  check(source.weights.empty() || model.weights.empty() || source.weights == model.weights, ErrorKind::Usage, kSource, "the weights are '",
        source.weights, "' and model.weights '", model.weights, "'; hint: omit one of them");
  return source.weights.empty() ? model.weights : source.weights;
}

SourcedModel of_name(const ModelSource& source, const Parts& parts) {
  const auto given = source.weights.empty() ? detail::option_text(source.model.options, "weights") : source.weights;
  const auto part = with_weights_options(source.model, parts, given);
  SourcedModel out{.model = make_model(part, parts, source.seed)};
  const auto path = weights_of(source, out.model);
  if (!path.empty()) {
    auto file = read_weights_for(part, parts, path, source.set);
    out.report = load_weights_file(out.model, file, path, {.strict = false});
    out.averages = file.averages;
    out.checkpoint = file.checkpoint;
    out.weights = path;
    out.classes = std::move(file.classes);
    check_fit(out.report, source.fit, path);
  }
  if (out.report.fits()) merge_adapter_of(out.model, part, parts);
  return out;
}

}  // namespace

SourcedModel model_from(const ModelSource& source, const Parts& parts) {
  check(source.checkpoint.empty() != source.model.name.empty(), ErrorKind::Usage, kSource,
        "give either a checkpoint, or the name of a model");
  check(source.checkpoint.empty() || source.weights.empty(), ErrorKind::Usage, kSource, "a checkpoint has its own weights");
  auto out = source.checkpoint.empty() ? of_name(source, parts) : of_checkpoint(source, parts);
  if (source.checkpoint.empty() && source.fit != ModelSource::Fit::Reported && !out.report.loaded.empty())
    log(out.report.sound() ? LogLevel::Info : LogLevel::Warning, out.report.str());
  return out;
}

Model make_model(const PartConfig& part, const Parts& parts, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  auto model = [&] {
    const OwnGenerator own(generator);
    return parts.models.make(part, "model");
  }();
  auto shared = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(shared.mutex());
  shared.set_state(generator.get_state());
  return model;
}

}  // namespace npu_train
