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
#include "npu_train/tools/doctor/checks.hpp"

namespace npu_train {

/// Sizes of the scaling sweeps. An empty list is filled for the model or the machine.
struct ScalingSizes {
  std::vector<int64_t> batch = {8, 16, 32, 64};  ///< samples per step; the other sweeps use the first
  std::vector<int64_t> depth{};                  ///< number of blocks; for ResNets, the number in the name; empty: 2, 4, 8, 12, or 18, 34
  std::vector<int64_t> image{};                  ///< pixels per side; empty: half, one and two times the model's size
  std::vector<int64_t> threads{};                ///< CPU threads; empty: 1, 2, 4 ... up to all
  std::vector<int64_t> workers{};                ///< workers of the loader; empty: as for threads
  std::vector<int64_t> layers = {16, 32, 64, 128};  ///< length of a chain of layers that is dumped twice and compared
  int64_t steps = 10;                               ///< measured steps per size
};

struct BenchOptions {
  /// The measurements, in this order:
  ///
  ///   step           training steps on one random batch, without data loading
  ///   train          the complete loop on the configuration's data
  ///   infer          latency and throughput of predictions, batch 1 and `batch`; with `fuse` also of the fused model
  ///   infer-batch    predictions in batches of 1, 2, 4 ... 64: samples per second and latency; a batch that fails is a row
  ///   forward        predictions on the device compared with those of the CPU
  ///   amp            the configuration's low precision (default: bf16-mixed) compared with 32-true, in training and inference
  ///                  with equal weights and batches: time, memory, losses
  ///   batch          batches of 1 to 64, up to the best throughput and until memory runs out
  ///   loader         the data loader alone, over batch sizes and numbers of workers; augmentation on device and host
  ///   checkpoint     time that training waits for a checkpoint, written asynchronously and synchronously
  ///   checkpointing  activation checkpointing on and off
  ///   threads        CPU threads from 1 up to all cores
  ///   scaling        growth of costs: step time by batch, depth, image size and threads; memory by batch; loader by workers;
  ///                  dump and compare by layers; each with its exponent, and a sentence if it is worse than linear
  ///   dist           steps of several ranks, including this process: weak scaling (`batch` per rank) and strong scaling
  ///                  (`batch` shared by the ranks), bytes, time of communication and the share that the backward pass hides,
  ///                  by bucket. Every rank calls run_bench; use the report of rank 0
  ///   stages         one stage of stages.hpp with one seed: a training of `warmup` + `steps` steps on the configuration's data
  ///                  by several ranks, including this process: speed, memory, communication and loss. Every rank calls
  ///                  run_bench; use the report of rank 0
  ///   null           how often two equal programs get a verdict, which should not happen
  std::vector<std::string> what = {"step"};
  int64_t batch = 32;         ///< samples per step
  int64_t warmup = 10;        ///< steps before the measured ones
  int64_t steps = 100;        ///< measured steps of step and train
  int64_t infer_steps = 200;  ///< measured predictions
  int64_t sweep_steps = 50;   ///< steps per size or number of threads
  int64_t pairs = 10;         ///< repetitions of interleaved measurements; a verdict needs six
  bool activations = false;   ///< with step: also the memory of forward and backward, without parameters, gradients and optimizer
  bool fuse = false;          ///< with infer: also the model fused by nn/fuse.hpp, including patterns that save no time
  bool phases = true;         ///< with step and train: the time of each phase, and with step the bytes that operators move
  bool machine = true;        ///< measure the machine's peak speed of matrix products and copies
  ScalingSizes scaling{};
  int64_t null_trials = 20;          ///< comparisons of two equal programs with `pairs` steps each
  std::string trace{};               ///< with dist: file for a Chrome trace of all ranks' buckets in the last step; "": none
  HostView host = HostView::live();  ///< source of the power readings
  /// Called between repetitions. If it returns true, the benchmark ends: completed rows are reported, with a note that others are missing.
  std::function<bool()> stopped{};
};

/// Returns the allowed names in BenchOptions::what.
const std::vector<std::string>& bench_sections();

/// Runs the requested measurements on the model that a training of the configuration would use. If the data can be opened, they determine
/// its image size and classes. A section that fails is reported as a row, and the others continue.
///
/// Error(Usage) for an unknown section, and for one that needs a missing part of the configuration (a model, data). Throws the Error of the
/// first failed section if nothing was measured.
BenchReport run_bench(const RunConfig& config, const BenchOptions& options = {}, const Parts& parts = builtin_parts());

/// Joins the rows of section dist for several numbers of ranks. If one rank alone was measured, adds the efficiency: samples per second per
/// rank, divided by those of one rank alone.
BenchReport joined_worlds(std::vector<BenchReport> worlds);

}  // namespace npu_train
