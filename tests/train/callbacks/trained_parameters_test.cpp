#include "testing.hpp"

#include "npu_train/core/log.hpp"
#include "train/callbacks/trained_parameters.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::TrainedParameters;

namespace {

struct Frozen {
  Toy toy;
  ParameterSet parameters = toy.task->parameters();
  TrainedParameters trained{parameters, *toy.precision, *toy.optimizer, nullptr, *toy.strategy};
  void freeze(bool frozen) {
    for (auto& p : toy.net->first->parameters()) p.set_requires_grad(!frozen);
  }
  bool trains(const std::string& name) const { return toy.optimizer->parameters().find(name) != nullptr; }
};

}  // namespace

TEST_CASE("the names of trained parameters are in the checkpoint once they were changed, and come back with it") {
  Frozen run, resumed;
  CHECK(run.trained.state().empty());
  run.freeze(true);
  run.trained.refresh();
  CHECK_FALSE(run.trains("first.weight"));
  CHECK(run.trained.state().text("trained", "loop") == "norm.weight\nnorm.bias\nhead.weight\nhead.bias");
  resumed.trained.load_state(run.trained.state());
  CHECK_FALSE(resumed.trains("first.weight"));
  CHECK_FALSE(resumed.toy.net->first->weight.requires_grad());
  resumed.trained.load_state({});  // an older state: the parameters with which the run was set up
  CHECK(resumed.trains("first.weight"));
}

TEST_CASE("a parameter that requires a gradient and is not trained is reported once") {
  int warnings = 0;
  const ScopedLogSink sink([&](LogLevel level, std::string_view) { warnings += level == LogLevel::Warning ? 1 : 0; });
  Frozen run;
  run.trained.warn_of_untrained();
  CHECK(warnings == 0);
  run.freeze(true);
  run.trained.refresh();
  run.freeze(false);
  for (int i = 0; i < 2; ++i) run.trained.warn_of_untrained();
  CHECK(warnings == 1);
  for (const auto& p : run.toy.task->parameters()) p.value.set_requires_grad(false);
  CHECK(error_of([&] { run.trained.refresh(); }).kind() == ErrorKind::Usage);
}
