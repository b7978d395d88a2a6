/// Exports a training in the format of a PyTorch script's checkpoint, so that such a script can continue it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/weight_set.hpp"

namespace npu_train {

struct TorchCheckpointFiles {
  int64_t epoch = 0;               ///< number of finished epochs
  std::vector<std::string> files;  ///< paths of the written files
  bool averages = false;           ///< the weights are averages
};

/// Writes a checkpoint into `folder` as two files for `torch.load(path, weights_only=True)`:
///
///   best_model_epoch_N.pth   {model_state_dict, optimizer_state_dict, epoch: N, best_accuracy}; N is the number of finished epochs
///   training_history.pth     {train_loss, train_acc, val_loss, val_acc}: four lists, with one entry for each finished epoch
///
/// The weights have torchvision's names, or the model's own; the three projections of a ViT with qkv: split, and their optimizer state, are
/// joined into torchvision's single projection. The state is for torch.optim.SGD, Adam or AdamW over `model.parameters()`, with the
/// learning rate of the last step. With `no_decay` there are two groups; the second has the parameters with at most one dimension, or named
/// "bias". Accuracies are in percent; nan for an epoch without validation. If the checkpoint has averages, which the run validates, these
/// are written as the weights; `set` can choose the other weights. best_accuracy is the val_acc of the written weights, or None if they
/// were not validated.
///
/// `from` is a checkpoint or a run folder. From a run folder, the best checkpoint is used or, if there is none, the last. A checkpoint
/// outside its run folder has no history, so the second file is not written. Error(Usage) for an optimizer that torch.optim does not have,
/// and for split projections that were only partly trained; Error(Checkpoint) for a checkpoint that cannot be read, a damaged history, and
/// files that cannot be written. `overrides` change the checkpoint's configuration, "model.KEY=VALUE": a TorchScript model needs
/// model.allow_code=true.
TorchCheckpointFiles save_torch_checkpoint(const std::string& from, const std::string& folder,
                                           const std::vector<std::string>& overrides = {}, const Parts& parts = builtin_parts(),
                                           WeightSet set = WeightSet::Auto);

/// Writes the TorchScript module of a run or checkpoint with its trained weights, for torch.jit.load. `from` and `overrides` as in
/// save_torch_checkpoint(). Error(Usage) for other models and without model.allow_code=true; Error(Checkpoint) as in
/// save_torch_checkpoint().
void save_trained_torchscript(const std::string& from, const std::string& path, const std::vector<std::string>& overrides,
                              const Parts& parts = builtin_parts(), WeightSet set = WeightSet::Auto);

}  // namespace npu_train
