/// Benchmarks of a configuration: steps, training on its data, inference, and the effects of precision, batch, loader, checkpointing and
/// threads on them.
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

/// Sizes of the scaling sweeps; an empty list: determined by the model or the machine.
struct ScalingSizes {
  std::vector<int64_t> batch = {8, 16, 32, 64};     ///< samples of a step; the first also of the sweeps below
  std::vector<int64_t> depth{};                     ///< blocks; for ResNets the number in the name; empty: 2, 4, 8, 12, or 18, 34
  std::vector<int64_t> image{};                     ///< pixels of a side; empty: half, one and two times the model's
  std::vector<int64_t> threads{};                   ///< CPU threads; empty: 1, 2, 4 ... to all
  std::vector<int64_t> workers{};                   ///< of the loader; empty: as threads
  std::vector<int64_t> layers = {16, 32, 64, 128};  ///< of a chain of layers that is dumped, and two dumps of which are compared
  int64_t steps = 10;                               ///< measured steps for each size
};

struct BenchOptions {
  /// The measurements, in this order:
  ///
  ///   step           training steps on one random batch: the step alone
  ///   train          the complete loop on the configuration's data
  ///   infer          latency and throughput of predictions, batch 1 and `batch`; with `fuse` also of the fused model
  ///   infer-batch    predictions in batches of 1, 2, 4, 8, 16, 32 and 64: samples per second and latency; a batch that fails is a row
  ///   forward        predictions on the device compared with the CPU's
  ///   amp            the configuration's low precision (bf16-mixed if it has none) compared with 32-true, training and inference, from
  ///   equal
  ///                  weights and batch: time, memory, losses
  ///   batch          batches of 1 to 64 up to the knee and to out of memory
  ///   loader         the data's loader alone, over batch sizes and numbers of workers; augmentation on the device compared with the host
  ///   checkpoint     time that training waits for a checkpoint: written asynchronously and synchronously
  ///   checkpointing  activation checkpointing on and off
  ///   threads        CPU threads from 1 up to the cores
  ///   scaling        growth of costs: step time by batch, depth, image size and threads; memory by batch; loader by workers; dump and
  ///                  compare by layers; each with its exponent, and a sentence if it is worse than linear
  ///   dist           steps of the ranks that this process is one of: weak scaling (`batch` per rank) and strong scaling (`batch` shared by
  ///                  the ranks), bytes, time of communication and the share of it that the backward pass hides, by bucket. Every rank
  ///                  calls run_bench; the report of rank 0 counts
  ///   stages         one training of `warmup` + `steps` steps on the configuration's data, by the ranks that this process is one of:
  ///   speed,
  ///                  memory, communication and loss of one stage of stages.hpp with one seed. Every rank calls run_bench; the report of
  ///                  rank 0 counts
  ///   null           how often two equal programs get a verdict, which should not happen
  std::vector<std::string> what = {"step"};
  int64_t batch = 32;         ///< samples of a step
  int64_t warmup = 10;        ///< steps before the measured ones
  int64_t steps = 100;        ///< measured steps of step and train
  int64_t infer_steps = 200;  ///< measured predictions
  int64_t sweep_steps = 50;   ///< steps for each size and number of threads
  int64_t pairs = 10;         ///< repetitions of interleaved measurements; a verdict needs six
  bool activations = false;   ///< with step: also the memory of forward and backward, without parameters, gradients and optimizer
  bool fuse = false;          ///< with infer: also the model fused by nn/fuse.hpp, whatever a pattern saves
  bool phases = true;         ///< with step and train: the time of each phase, and with step the bytes that operators move
  bool machine = true;        ///< measure the machine's peak speed of matrix products and copies
  ScalingSizes scaling{};
  int64_t null_trials = 20;          ///< comparisons of two equal programs, `pairs` of steps each
  std::string trace{};               ///< with dist: a Chrome trace of the buckets of all ranks in the last step; "": none
  HostView host = HostView::live();  ///< source of the power readings
  /// Called between repetitions; true ends the benchmark: the completed rows are reported, with a note that the rest is missing.
  std::function<bool()> stopped{};
};

/// The allowed names in BenchOptions::what.
const std::vector<std::string>& bench_sections();

/// The model is the one that a training of the configuration would use: it follows the data's image size and classes if the data can
/// be opened. A section that fails is a row with its failure, and the others continue.
///
/// Error(Usage) for an unknown section, and for one that needs a missing part of the configuration (a model, data); any Error of
/// the first failed section if nothing was measured.
BenchReport run_bench(const RunConfig& config, const BenchOptions& options = {}, const Parts& parts = builtin_parts());

/// The rows of section dist of several numbers of ranks, with the efficiency of each number next to one rank, if that was measured: samples
/// per second over ranks times those of one.
BenchReport joined_worlds(std::vector<BenchReport> worlds);

}  // namespace npu_train
