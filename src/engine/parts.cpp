#include "npu_train/engine/parts.hpp"

#include "engine/loggers/loggers.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/models/registry.hpp"
#include "npu_train/train/classifier.hpp"
#include "npu_train/train/contrastive.hpp"
#include "npu_train/train/language_model.hpp"

namespace npu_train {
namespace {

const char* const kMetricsDoc = "metrics by name, instead of those of the task; the first one is the monitor's default";

/// Keys of the task classifier: ClassifierOptions with metrics by name.
struct ClassifierKeys {
  double label_smoothing = 0;
  std::vector<double> class_weights{};
  bool balanced_classes = false;  ///< already replaced by class_weights when the task is made
  double focal_gamma = 0;
  std::vector<PartConfig> metrics{};
  static const ConfigTable<ClassifierKeys>& config_table() {
    using T = ClassifierKeys;
    static const auto table =
        ConfigTable<T>("task classifier")
            .field("label_smoothing", &T::label_smoothing, "share of the target that is spread over all classes (0.1 for ImageNet recipes)",
                   between(0, 0.999))
            .field("class_weights", &T::class_weights, "factor of the loss of each class in training; []: 1", at_least(0))
            .field("balanced_classes", &T::balanced_classes, "class_weights from the training data: N / (classes * N_c)")
            .field("focal_gamma", &T::focal_gamma, "focal loss in training: the loss of a sample times (1 - p)^gamma; 0: off", at_least(0))
            .field("metrics", &T::metrics, kMetricsDoc);
    return table;
  }
};

struct MultilabelKeys {
  std::vector<double> pos_weight{};
  std::vector<PartConfig> metrics{};
  static const ConfigTable<MultilabelKeys>& config_table() {
    using T = MultilabelKeys;
    static const auto table = ConfigTable<T>("task multilabel_classifier")
                                  .field("pos_weight", &T::pos_weight,
                                         "factor of the loss where a class is present, for each class, in training; []: 1", more_than(0))
                                  .field("metrics", &T::metrics, kMetricsDoc);
    return table;
  }
};

struct RegressorKeys {
  std::vector<PartConfig> metrics{};
  static const ConfigTable<RegressorKeys>& config_table() {
    static const auto table = ConfigTable<RegressorKeys>("task regressor").field("metrics", &RegressorKeys::metrics, kMetricsDoc);
    return table;
  }
};

struct ContrastiveKeys {
  std::vector<PartConfig> metrics{};
  static const ConfigTable<ContrastiveKeys>& config_table() {
    static const auto table = ConfigTable<ContrastiveKeys>("task contrastive").field("metrics", &ContrastiveKeys::metrics, kMetricsDoc);
    return table;
  }
};

struct LanguageModelKeys {
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  std::vector<PartConfig> metrics{};
  static const ConfigTable<LanguageModelKeys>& config_table() {
    using T = LanguageModelKeys;
    static const auto table =
        ConfigTable<T>("task language_model")
            .field("ignore_index", &T::ignore_index, "targets of this value count neither in the loss nor in the metrics")
            .field("label_smoothing", &T::label_smoothing, "fraction of the target that is distributed over all tokens", between(0, 0.999))
            .field("metrics", &T::metrics, kMetricsDoc);
    return table;
  }
};

struct MaskedLanguageModelKeys {
  int64_t mask_token = -1;
  std::vector<int64_t> special_tokens{};
  double mask_probability = 0.15;
  double mask_share = 0.8;
  double random_share = 0.1;
  int64_t seed = 0;
  std::vector<PartConfig> metrics{};
  static const ConfigTable<MaskedLanguageModelKeys>& config_table() {
    using T = MaskedLanguageModelKeys;
    static const auto table =
        ConfigTable<T>("task masked_language_model")
            .field("mask_token", &T::mask_token, "token in the place of a hidden one; must be given: 103 for BERT's vocabulary")
            .field("special_tokens", &T::special_tokens, "tokens that are never hidden, such as beginning, end and padding")
            .field("mask_probability", &T::mask_probability, "probability with which a token is to be predicted", between(0, 1))
            .field("mask_share", &T::mask_share, "fraction of these tokens that mask_token replaces", between(0, 1))
            .field("random_share", &T::random_share, "fraction of these tokens that a random token replaces; the rest stays visible",
                   between(0, 1))
            .field("seed", &T::seed, "seed of the choice; not set: that of the run")
            .field("metrics", &T::metrics, kMetricsDoc);
    return table;
  }

  MaskedLanguageModelOptions options(const MetricRegistry& registry) const {
    return {.mask_token = mask_token,
            .special_tokens = special_tokens,
            .mask_probability = mask_probability,
            .mask_share = mask_share,
            .random_share = random_share,
            .seed = static_cast<uint64_t>(seed),
            .metrics = make_metrics(metrics, "task.metrics", registry)};
  }
};

}  // namespace

Parts builtin_parts() {
  Parts parts;
  add_builtin_models(parts.models);
  add_builtin_datasets(parts.datasets);
  add_builtin_transforms(parts.transforms);
  add_builtin_collates(parts.collates);
  add_builtin_metrics(parts.metrics);
  add_builtin_optimizers(parts.optimizers);
  add_builtin_schedules(parts.schedules);
  detail::add_builtin_loggers(parts.loggers);
  parts.tasks.add<ClassifierKeys>("classifier", "cross entropy on logits; metrics acc1 and, with more than 5 classes, acc5",
                                  [](const ClassifierKeys& keys, const Model& model, const MetricRegistry& metrics) {
                                    return classifier(model, {.label_smoothing = keys.label_smoothing,
                                                              .class_weights = keys.class_weights,
                                                              .focal_gamma = keys.focal_gamma,
                                                              .metrics = make_metrics(keys.metrics, "task.metrics", metrics)});
                                  });
  parts.tasks.add<MultilabelKeys>("multilabel_classifier", "binary cross entropy for samples with any number of classes; metrics acc, map",
                                  [](const MultilabelKeys& keys, const Model& model, const MetricRegistry& metrics) {
                                    return multilabel_classifier(model, {.pos_weight = keys.pos_weight,
                                                                         .metrics = make_metrics(keys.metrics, "task.metrics", metrics)});
                                  });
  parts.tasks.add<RegressorKeys>("regressor", "mean squared error; metric mae",
                                 [](const RegressorKeys& keys, const Model& model, const MetricRegistry& metrics) {
                                   return regressor(model, make_metrics(keys.metrics, "task.metrics", metrics));
                                 });
  parts.tasks.add<LanguageModelKeys>("language_model", "cross entropy of the next token; metrics acc, perplexity",
                                     [](const LanguageModelKeys& keys, const Model& model, const MetricRegistry& metrics) {
                                       return language_model(model, {.ignore_index = keys.ignore_index,
                                                                     .label_smoothing = keys.label_smoothing,
                                                                     .metrics = make_metrics(keys.metrics, "task.metrics", metrics)});
                                     });
  parts.tasks.add<MaskedLanguageModelKeys>("masked_language_model", "cross entropy of hidden tokens; metrics acc, perplexity",
                                           [](const MaskedLanguageModelKeys& keys, const Model& model, const MetricRegistry& metrics) {
                                             return masked_language_model(model, keys.options(metrics));
                                           });
  parts.tasks.add<ContrastiveKeys>("contrastive", "which text belongs to which image; metrics text_recall and image_recall at 1 and 5",
                                   [](const ContrastiveKeys& keys, const Model& model, const MetricRegistry& metrics) {
                                     return contrastive(model, {.metrics = make_metrics(keys.metrics, "task.metrics", metrics)});
                                   });
  return parts;
}

void register_devices(const Parts& parts) {
  for (const auto& name : parts.devices.names()) {
    if (find_backend(name) != nullptr) continue;
    auto backend = parts.devices.make({.name = name}, "device");
    check(backend != nullptr && backend->name() == name, ErrorKind::Usage, "Parts::devices", "the factory of '", name, "' made ",
          backend == nullptr ? "no backend" : "a backend of the name '" + backend->name() + "'");
    add_backend(std::move(backend));
  }
}

}  // namespace npu_train
