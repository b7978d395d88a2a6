/// Compares the weights of two runs, layer by layer.
#pragma once

#include <filesystem>

#include "npu_train/tools/align/compare.hpp"

namespace npu_train {

/// Compares the weights in two files. Each file is one of our checkpoints, a .safetensors file, or a .pth, .pt, .bin or .ckpt file of
/// torch.save, which is read without executing code. A checkpoint is given by its folder; for the folder `checkpoints` or a run's folder,
/// its last checkpoint is used.
///
/// The result is one StepComparison. Its calls are layers, with direction "forward" and side "parameters", in the order of A. (If a file is
/// in alphabetical order, the network's order is lost; then its layers are sorted by name, with numbers in names compared by value.) A
/// tensor outside all layers is a separate layer. The optimizer's tensors and the moving average are further layers, "optimizer conv1" and
/// "ema conv1", if both sides have them.
///
///   names           the prefixes module., model., _orig_mod. and state_dict. are ignored if all tensors of one side have them.
///                   CompareOptions::mapping pairs layers or tensors of A with those of B by their names without these prefixes; `fuzzy`
///                   pairs layers without a counterpart by shape and order
///   tolerances      as for dumps: default_tolerance() of the dtypes, or CompareOptions, whose `layer_tolerance`, `layers` and `sample`
///                   apply to layers
///   one side only   an entry without a counterpart is counted in `one_sided` and reported in a note. It is a failure if it is a weight of
///                   the model, unless the weights are only grouped differently; a different shape is a failure, too
///   first           the first layer beyond its tolerance or, if there is none, the first layer that is not equal (`within_tolerance` is
///                   then true), with likely causes: a transposed weight, a missing bias, zeros, a different classifier head, a different
///                   training step
///   facts, notes    facts: the metadata of the checkpoints. Notes: the facts that differ (steps, loss scales, numbers of updates), and
///                   names that share one tensor on one side only (known for a .pth; .safetensors stores the values of each name
///                   separately)
///
/// Random states, the loader's position and counters are not compared. The options `reference`, `steps` and `rank` of CompareOptions do not
/// apply. One pair of tensors is in memory at a time, but a file of torch.save is read completely. Error(Data) for a file of another kind,
/// for a damaged or hostile file, and if the files have no tensor in common.
DumpComparison compare_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b, const CompareOptions& options = {});

}  // namespace npu_train
