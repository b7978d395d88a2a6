/// Compares the weights of two runs, layer by layer.
#pragma once

#include <filesystem>

#include "npu_train/tools/align/compare.hpp"

namespace npu_train {

/// Compares two files of weights. Each side is one of our checkpoints (its folder; or the folder `checkpoints` or a run's folder, of which
/// the last checkpoint is used), a .safetensors file, or a .pth, .pt, .bin or .ckpt of torch.save (read without executing code).
///
/// The result is one StepComparison. Its calls are layers, with direction "forward" and side "parameters", in the order of A. (A file in
/// alphabetical order has lost the network's order; its layers are sorted with numbers by value.) A tensor outside all layers is a separate
/// layer. The optimizer's tensors and the moving average are further layers, "optimizer conv1" and "ema conv1", if both sides have them.
///
///   names           module., model., _orig_mod. and state_dict. are ignored if all tensors of one side have them. CompareOptions::mapping
///                   pairs layers or tensors of A with those of B by these names; `fuzzy` pairs the remaining ones by shape and order
///   tolerances      as for dumps: default_tolerance of the dtypes, or CompareOptions; `layer_tolerance`, `layers` and `sample` by layer
///   one side only   counted in one_sided and reported in a note; a failure if it is a weight of the model, unless weights are only grouped
///                   differently; a different shape is a failure, too
///   first           the first layer beyond its tolerance, else (within_tolerance) the first that is not bit-equal, with likely causes:
///                   a transposed weight, a missing bias, zeros, a different classifier head, a different training step
///   facts, notes    the checkpoints' own metadata; steps, loss scales, numbers of updates if they differ; names that share one
///                   tensor on one side only (known for a .pth; .safetensors stores the values of each name separately)
///
/// Random states, the loader's position and counters are not compared. CompareOptions::reference, steps and rank do not apply. One pair of
/// tensors is in memory at a time, but a file of torch.save is read completely. Error(Data) for a file of another kind, for a damaged or
/// hostile file, and if the files have no tensor in common.
DumpComparison compare_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b, const CompareOptions& options = {});

}  // namespace npu_train
