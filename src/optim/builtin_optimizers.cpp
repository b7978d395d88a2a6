#include "npu_train/optim/adam.hpp"
#include "npu_train/optim/adamw.hpp"
#include "npu_train/optim/lamb.hpp"
#include "npu_train/optim/sgd.hpp"

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
}

}  // namespace npu_train
