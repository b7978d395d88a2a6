/// The parts that a configuration can name. A value: copy it, add your parts, and pass it to the Trainer.
///
///   auto parts = npu_train::builtin_parts();
///   parts.models.add<MyNetOptions>("my_net", "my own network", [](const MyNetOptions& o) { return make_my_net(o); });
///   npu_train::Trainer trainer(npu_train::load_config("my.yaml"), parts);
#pragma once

#include <memory>

#include "npu_train/core/registry.hpp"
#include "npu_train/data/datasets.hpp"
#include "npu_train/engine/run_observer.hpp"
#include "npu_train/nn/model.hpp"
#include "npu_train/optim/optimizer.hpp"
#include "npu_train/optim/schedule.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train {

/// A task is made for a model.
using TaskRegistry = Registry<std::shared_ptr<Task>, const Model&>;

struct Parts {
  ModelRegistry models{"model"};
  DatasetRegistry datasets{"data set"};
  TaskRegistry tasks{"task"};
  OptimizerRegistry optimizers{"optimizer"};
  ScheduleRegistry schedules{"learning rate schedule"};
  ObserverRegistry observers{};  ///< sections of observers, such as `dump` of npu_train::tools
};

/// All parts of the library; no observers.
Parts builtin_parts();

}  // namespace npu_train
