#include "train/callbacks/trained_parameters.hpp"

#include <algorithm>
#include <set>
#include <sstream>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/dist/offload.hpp"

namespace npu_train::detail {

std::string TrainedParameters::names() const {
  std::vector<std::string> out;
  for (const auto& p : parameters_)
    if (optimizer_.parameters().find(p.name) != nullptr) out.push_back(p.name);
  return join(out, "\n");
}

void TrainedParameters::refresh() {
  check(!strategy_.shards(), ErrorKind::Usage, "TrainLoop::refresh_parameters",
        "which parameters are trained cannot change while their state is in shards; hint: trainer.strategy=ddp, or freeze them before "
        "fit()");
  change();
}

// Applies a changed set of trained parameters. With a sharding strategy, the slices may change. The optimizer state and the averages of
// changed slices are reset, and the caller must load them afterwards.
void TrainedParameters::change() {
  check(std::any_of(parameters_.begin(), parameters_.end(), [](const Parameter& p) { return p.value.requires_grad(); }), ErrorKind::Usage,
        "TrainLoop::refresh_parameters", "no parameter requires a gradient: there is nothing left to train");
  const bool averages_fill_slices = average_ != nullptr && strategy_.shards_parameters();
  check(!averages_fill_slices || &on_device(strategy_, optimizer_.parameters()) == &optimizer_.parameters(), ErrorKind::Usage,
        "TrainLoop::load_state",
        "which parameters are trained has changed during the saved run, and averages of zero3 with "
        "dist.offload=optimizer cannot follow; allowed with it: dist.offload=none, trainer.strategy=zero2");
  if (at_start_.empty()) at_start_ = names();
  const auto before = optimizer_.parameters().numel();
  const auto updated = strategy_.setup(precision_.refresh(parameters_));
  precision_.set_updated(updated);
  optimizer_.set_parameters(updated);
  if (average_ != nullptr) average_->set_parameters(optimizer_.parameters());
  const auto now = optimizer_.parameters().numel();
  if (now != before) log_info(with_commas(now), " parameters are trained from now on, ", with_commas(before), " before");
}

void TrainedParameters::train_only(const std::string& names) {
  std::set<std::string> trained;
  std::istringstream lines(names);
  for (std::string name; std::getline(lines, name);) trained.insert(name);
  for (const auto& p : parameters_) p.value.set_requires_grad(trained.count(p.name) != 0);
  change();
}

void TrainedParameters::warn_of_untrained() {
  if (warned_) return;
  std::vector<std::string> names;
  for (const auto& p : parameters_)
    if (p.value.requires_grad() && optimizer_.parameters().find(p.name) == nullptr) names.push_back(p.name);
  if (names.empty()) return;
  warned_ = true;
  log_warning(names.size(), names.size() == 1 ? " parameter requires" : " parameters require", " a gradient and ",
              names.size() == 1 ? "is" : "are", " not trained (", first_few(names, 3),
              "): frozen when the run was set up; hint: call TrainLoop::refresh_parameters() after requires_grad is changed");
}

State TrainedParameters::state() const {
  State out;
  if (!at_start_.empty()) out.values["trained"] = names();
  return out;
}

void TrainedParameters::load_state(const State& state) {
  const bool has = state.values.count("trained") > 0;
  if (has || !at_start_.empty()) train_only(has ? state.text("trained", "loop") : at_start_);
}

}  // namespace npu_train::detail
