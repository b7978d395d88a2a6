/// The parts that a configuration can name. Parts is a value: copy it, add your parts, and pass it to the Trainer.
///
///   auto parts = npu_train::builtin_parts();
///   parts.models.add<MyNetOptions>("my_net", "my own network", [](const MyNetOptions& o) { return make_my_net(o); });
///   parts.callbacks.add<PlateauOptions>("plateau", "lowers the learning rate", [](const PlateauOptions& o) {
///     return std::make_shared<Plateau>(o);
///   });   // callbacks: [{name: plateau, patience: 3}]
///   npu_train::Trainer trainer(npu_train::load_config("my.yaml", {}, parts), parts);
#pragma once

#include <functional>
#include <memory>

#include "npu_train/core/registry.hpp"
#include "npu_train/data/datasets.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/dist/process_group.hpp"
#include "npu_train/engine/model_tuning.hpp"
#include "npu_train/engine/run_observer.hpp"
#include "npu_train/nn/model.hpp"
#include "npu_train/optim/optimizer.hpp"
#include "npu_train/optim/schedule.hpp"
#include "npu_train/train/callback.hpp"
#include "npu_train/train/metric.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train {

class Logger;

/// Factories of tasks, each for a given model. A factory also gets the metrics that `task.metrics` may name, for make_metrics(); it may
/// omit that parameter.
using TaskRegistry = Registry<std::shared_ptr<Task>, const Model&, const MetricRegistry&>;
/// Factories of callbacks, called for each run in the order of the list `callbacks`.
using CallbackRegistry = Registry<std::shared_ptr<Callback>>;
/// Factories of loggers, called for each run that has a folder, in the order of the list output.logger; see engine/logger.hpp.
using LoggerRegistry = Registry<std::shared_ptr<Logger>>;
/// Factories of devices, called once per process, see register_devices().
using DeviceRegistry = Registry<std::shared_ptr<const DeviceBackend>>;

struct Parts {
  ModelParts models{"model"};
  DatasetRegistry datasets{"data set"};
  TransformRegistry transforms{"transform", "a program adds its own with parts.transforms.add"};
  CollateRegistry collates{"collate", "a program adds its own with parts.collates.add"};
  TaskRegistry tasks{"task"};
  MetricRegistry metrics{"metric", "a program adds its own with parts.metrics.add"};
  OptimizerRegistry optimizers{"optimizer"};
  ScheduleRegistry schedules{"learning rate schedule"};
  CallbackRegistry callbacks{"callback", "a program adds its own with parts.callbacks.add"};
  LoggerRegistry loggers{"logger", "a program adds its own with parts.loggers.add"};
  DeviceRegistry devices{"device"};  ///< kinds in addition to cpu, cuda, npu and sim_npu, by name
  ObserverRegistry observers{};      ///< sections of observers, such as `dump` of npu_train::tools
  /// Returns the processes that train together, if the program provides them. If the function is empty, these are the processes of the
  /// launch to which this process belongs.
  std::function<std::shared_ptr<ProcessGroup>(const DistOptions&)> process_group{};
};

/// Returns all built-in parts; callbacks, devices and observers are empty.
Parts builtin_parts();

/// Registers the devices of `parts` with the process, permanently. A kind whose name is already known is kept. check_config() and
/// load_config() call this function, so only programs that call Device::parse or resolve_device before them need to call it. Error(Usage)
/// for a factory that returns null, or a backend with a different name.
void register_devices(const Parts& parts);

}  // namespace npu_train
