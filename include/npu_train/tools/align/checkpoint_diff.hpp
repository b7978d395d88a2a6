/// Where the weights of two runs differ, layer by layer.
#pragma once

#include <filesystem>

#include "npu_train/tools/align/compare.hpp"

namespace npu_train {

/// Compares two files of weights. Each side is a checkpoint of ours (its folder, the folder `checkpoints`, or the run's: its last), a
/// .safetensors file, or a .pth, .pt, .bin or .ckpt of torch.save (read without executing anything).
///
/// The result is one StepComparison. Its calls are layers in the order of A (of a file in alphabetical order: with numbers by value, since
/// the network's order is lost), of direction "forward" and side "parameters"; a tensor outside of any layer is a layer of its own. The
/// optimizer's tensors and the moving average are further layers, "optimizer conv1" and "ema conv1", where both sides have them.
///
///   names           module., model., _orig_mod. and state_dict. before all tensors of one side do not count. CompareOptions::mapping
///                   pairs layers or tensors of A with those of B by these names; `fuzzy` pairs what is left over by shape and order
///   tolerances      as for dumps: default_tolerance of the dtypes, or CompareOptions; `layer_tolerance`, `layers` and `sample` by layer
///   one side only   counted in one_sided, told in a note, no failure; another shape is one
///   first           the first layer beyond its tolerance, else (within_tolerance) the first that is not equal, with likely causes:
///                   a transposed weight, a bias that is missing, zeros, another classifier head, another step of training
///   facts, notes    what the checkpoints say of themselves; steps, loss scales, counts of updates where they differ; names that share one
///                   tensor on one side only (a .pth tells; .safetensors keeps the values of each name apart)
///
/// Random states, the loader's place and counters are not compared. CompareOptions::reference, steps and rank do not apply.
/// One pair of tensors is in memory at a time; a file of torch.save is read as a whole.
/// Error(Data) for what is no such file, is damaged or hostile, or has no tensor in common with the other.
DumpComparison compare_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b, const CompareOptions& options = {});

}  // namespace npu_train
