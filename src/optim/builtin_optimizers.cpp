#include "npu_train/optim/optimizers.hpp"

namespace npu_train {
namespace {

template <class Product, class Options>
void add(OptimizerRegistry& registry, const std::string& name, const std::string& doc) {
  registry.add<Options>(name, doc, [](const Options& options, const ParameterSet& parameters) -> std::unique_ptr<Optimizer> {
    return std::make_unique<Product>(parameters, options);
  });
}

}  // namespace

void add_builtin_optimizers(OptimizerRegistry& registry) {
  add<Sgd, SgdOptions>(registry, "sgd", "stochastic gradient descent with momentum");
  add<Adam, AdamOptions>(registry, "adam", "Adam; weight decay is added to the gradient");
  add<AdamW, AdamWOptions>(registry, "adamw", "Adam with decoupled weight decay");
  add<Lamb, LambOptions>(registry, "lamb", "Adam with a trust ratio for each tensor, for large batches");
  add<RmsProp, RmsPropOptions>(registry, "rmsprop", "gradients over the root of their mean square, as in PyTorch or TensorFlow");
  add<Adagrad, AdagradOptions>(registry, "adagrad", "gradients over the root of the sum of their squares");
  add<Adadelta, AdadeltaOptions>(registry, "adadelta", "steps whose size comes from earlier steps");
  add<Lion, LionOptions>(registry, "lion", "the sign of a momentum, with one state for each parameter");
  add<Adafactor, AdafactorOptions>(registry, "adafactor", "relative steps, with a state of one number for each row and column");
  add<Muon, MuonOptions>(registry, "muon", "an orthogonalised momentum for matrices, AdamW for the rest");
}

}  // namespace npu_train
