// Builds all objects of a run from its configuration.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/build_memory.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/engine/run_observer.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train {

class RankSetup;

/// The objects of one run, declared in an order in which they can be destroyed. Objects set before build() (task, data) are not made from
/// the configuration.
struct Run {
  Device device;
  DatasetPair data;
  std::vector<std::string> classes;  // classes that the configuration's data must have; empty: the data's own
  Split validated = Split::Val;      // the part of the configuration's data on which the run validates
  Model model;
  std::shared_ptr<Task> task;
  std::shared_ptr<const ParameterSet> parameters;  // parameters of the task
  // The strategy and the precision of the first optimizer exist before it, since other parts of the run take the device, the ranks and the
  // dtype from them.
  std::shared_ptr<Strategy> strategy;
  std::shared_ptr<Precision> precision;
  // An optimizer, and the objects that it does not share with other optimizers of the task.
  struct OwnOptimizer {
    std::string name;  // "" if the task has one
    std::shared_ptr<Strategy> strategy;
    std::shared_ptr<Precision> precision;
    std::unique_ptr<Optimizer> optimizer;
  };
  std::vector<OwnOptimizer> optimizers;
  std::unique_ptr<LrSchedule> schedule;
  std::unique_ptr<WeightAverage> average;
  std::optional<Loader> train, val;
  std::unique_ptr<CheckpointStore> store;
  ConfigNode resolved;
  std::unique_ptr<TrainLoop> loop;
  std::vector<std::unique_ptr<RunObserver>> observers;  // destroyed first

  /// The current step of build(), and a remedy if there is not enough memory for it.
  struct Building {
    const char *what = "", *remedy = "";
  } building;

  void build(const RunConfig& given, const Parts& parts, std::shared_ptr<std::atomic<bool>> stop);
  void open_store(const std::string& dir, const CheckpointOptions& options);
  /// Returns the objects that exist so far, for the observers.
  RunView view(const RunConfig& config, const Parts& parts) const;
  /// Logs one line each: device and precision, data, folder, effective batch.
  void announce(const std::string& run_dir) const;

 private:
  void choose_validated(const std::string& name);
  void make_data(const RunConfig& config, const Parts& parts);
  void check_number_of_classes(const RunConfig& config, const Parts& parts) const;
  void write_statistics();
  void make_loaders(const RunConfig& config, bool channels_last);
  ParameterSet gather_in_low_precision(const RunConfig& config, const ParameterSet& trained, const Parts& parts) const;
  // Whether Strategy::setup() moves the parameters of a configured model unit by unit, so that the device never has all of them.
  bool moves_in_units(const RunConfig& config) const;
  void make_optimizers(const RunConfig& config, const Parts& parts, const RankSetup& ranks, BuildMemory& memory);
  void make_optimizer(OwnOptimizer& out, const ParameterSet& all, const RunConfig& config, const Parts& parts, BuildMemory& memory);
  void make_schedule(const RunConfig& config, const Parts& parts);
  void announce_groups() const;
  void measure_flops(LoopParts& p) const;
  void lend(LoopParts& p);  // Sets the pointers of `p` to the objects of this run.
};

}  // namespace npu_train
