/// Benchmarks of a configuration: steps, training on its data, inference, and what precision, batch, loader, checkpointing and threads do
/// to them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/tools/bench/bench_report.hpp"
#include "npu_train/tools/doctor/host_view.hpp"

namespace npu_train {

/// Sizes of the scaling sweeps; an empty list: chosen by the model or the machine.
struct ScalingSizes {
  std::vector<int64_t> batch = {8, 16, 32, 64};     ///< samples of a step; the first also of the sweeps below
  std::vector<int64_t> depth{};                     ///< blocks; of ResNets the number in the name; empty: 2, 4, 8, 12, or 18, 34
  std::vector<int64_t> image{};                     ///< pixels of a side; empty: half, one and two times the model's
  std::vector<int64_t> threads{};                   ///< CPU threads; empty: 1, 2, 4 ... to all
  std::vector<int64_t> workers{};                   ///< of the loader; empty: as threads
  std::vector<int64_t> layers = {16, 32, 64, 128};  ///< of a chain that is dumped, and two dumps of it compared
  int64_t steps = 10;                               ///< that count, of each size
};

struct BenchOptions {
  /// What is measured, in this order:
  ///
  ///   step           training steps on one random batch: the step alone
  ///   train          the whole loop on the configuration's data
  ///   infer          latency and throughput of predictions, batch 1 and `batch`; with `fuse` beside the fused model
  ///   infer-batch    predictions in batches of 1, 2, 4, 8, 16, 32 and 64: samples a second and latency; a batch that fails is a row
  ///   forward        predictions on the device beside the CPU's
  ///   amp            the configuration's low precision (bf16-mixed where it has none) beside 32-true, training and inference, from equal
  ///                  weights and batch: time, memory, losses
  ///   batch          batches of 1 to 64 up to the knee and to out of memory
  ///   loader         the data's loader alone, over sizes of batches and numbers of workers; pictures changed on the device beside the host
  ///   checkpoint     how long training waits for a checkpoint: written beside it, and waited for
  ///   checkpointing  activation checkpointing on and off
  ///   threads        CPU threads from 1 up to the cores
  ///   scaling        how costs grow: step time by batch, depth, picture and threads; memory by batch; loader by workers; dump and
  ///                  compare by layers; each with its exponent, and a sentence where it is worse than linear
  ///   null           how often two equal programs are given a verdict, which must not be
  std::vector<std::string> what = {"step"};
  int64_t batch = 32;         ///< samples of a step
  int64_t warmup = 10;        ///< steps that do not count
  int64_t steps = 100;        ///< that count, of step and train
  int64_t infer_steps = 200;  ///< predictions that count
  int64_t sweep_steps = 50;   ///< of each size and number of threads
  int64_t pairs = 10;         ///< of what is measured in turn; a verdict needs six
  bool activations = false;   ///< with step: also what forward and backward need beside parameters, gradients and optimizer
  bool fuse = false;          ///< with infer: also the model as nn/fuse.hpp makes it, whatever a pattern saves
  bool phases = true;         ///< with step and train: what each phase takes, and with step the bytes that operators move
  bool machine = true;        ///< measure what this machine multiplies and copies at most
  ScalingSizes scaling{};
  int64_t null_trials = 20;          ///< of two equal programs, `pairs` of steps each
  HostView host = HostView::live();  ///< where power is read from
  /// Asked between repetitions; true ends the benchmark: what is done is reported, with a note that the rest is missing.
  std::function<bool()> stopped{};
};

/// The names that BenchOptions::what takes.
const std::vector<std::string>& bench_sections();

/// The model is the one that a training of the configuration would take: what the data says of pictures and classes counts, where it can
/// be opened. A section that fails is a row with its failure, and the others go on.
///
/// Error(Usage) for a section that there is not, and for one that needs what the configuration does not have (a model, data); any Error of
/// the first section that fails where nothing was measured.
BenchReport run_bench(const RunConfig& config, const BenchOptions& options = {}, const Parts& parts = builtin_parts());

}  // namespace npu_train
