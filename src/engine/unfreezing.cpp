#include "engine/unfreezing.hpp"

#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/name_pattern.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train::detail {
namespace {

constexpr const char* kUnfreeze = "model.unfreeze";

}  // namespace

const ConfigTable<UnfreezeStage>& UnfreezeStage::config_table() {
  using T = UnfreezeStage;
  static const auto table = ConfigTable<T>("model.unfreeze")
                                .field("match", &T::match, "pattern for names of parameters, as in model.freeze")
                                .field("epoch", &T::epoch, "number of epochs after which they are trained", at_least(1))
                                .synonym("until_epoch", "epoch");
  return table;
}

Unfreezing::Unfreezing(std::vector<UnfreezeStage> stages, const TrainLoop& loop) : stages_(std::move(stages)) {
  check(!loop.parts().strategy->shards(), ErrorKind::Usage, kUnfreeze,
        "the state of the optimizer is in slices, which cannot follow; allowed with it: trainer.strategy=ddp or single");
  std::vector<std::string> frozen;
  for (const auto& p : *loop.parts().parameters)
    if (!p.value.requires_grad()) frozen.push_back(p.name);
  check(!frozen.empty(), ErrorKind::Usage, kUnfreeze, "no parameter is frozen; hint: model.freeze");
  for (const auto& stage : stages_) selected_names(kUnfreeze, "frozen parameter", {stage.match}, frozen);
}

void Unfreezing::on_epoch_start(TrainLoop& loop, int64_t epoch) {
  bool changed = false;
  for (const auto& stage : stages_)
    for (const auto& p : *loop.parts().parameters) {
      if (epoch < stage.epoch || p.value.requires_grad() || !parts_match(p.name, stage.match)) continue;
      p.value.set_requires_grad(true);
      changed = true;
    }
  if (changed) loop.refresh_parameters();
}

}  // namespace npu_train::detail
