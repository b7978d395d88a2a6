#include "npu_train/engine/parts.hpp"

#include "npu_train/models/registry.hpp"
#include "npu_train/train/classifier.hpp"

namespace npu_train {

Parts builtin_parts() {
  Parts parts;
  add_builtin_models(parts.models);
  add_builtin_datasets(parts.datasets);
  add_builtin_optimizers(parts.optimizers);
  add_builtin_schedules(parts.schedules);
  parts.tasks.add<ClassifierOptions>("classifier", "cross entropy on logits; metrics acc1 and acc5",
                                     [](const ClassifierOptions& options, const Model& model) { return classifier(model, options); });
  parts.tasks.add<NoOptions>("regressor", "mean squared error; metric mae",
                             [](const NoOptions&, const Model& model) { return regressor(model); });
  return parts;
}

}  // namespace npu_train
