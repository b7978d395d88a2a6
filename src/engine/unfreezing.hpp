// model.unfreeze: stages of a run in which frozen parameters are trained again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/train/callback.hpp"

namespace npu_train {
struct Parts;
}

namespace npu_train::detail {

// An item of model.unfreeze.
struct UnfreezeStage {
  std::string match{};  // pattern, as in model.freeze
  int64_t epoch = 1;    // number of epochs after which the parameters are trained
  static const ConfigTable<UnfreezeStage>& config_table();
};

// Returns the stages of a model, whose part has been checked.
std::vector<UnfreezeStage> unfreeze_stages(const PartConfig& part, const Parts& parts);

// Sets requires_grad at the start of epochs. It has no state: the epoch alone determines what is trained, and a checkpoint inside an epoch
// stores which parameters are trained.
class Unfreezing final : public Callback {
 public:
  // Error(Usage) for a stage that matches no frozen parameter of the loop, and if the ranks shard the optimizer's state.
  Unfreezing(std::vector<UnfreezeStage> stages, const TrainLoop& loop);
  void on_epoch_start(TrainLoop& loop, int64_t epoch) override;

 private:
  std::vector<UnfreezeStage> stages_;
};

}  // namespace npu_train::detail
