#include <algorithm>
#include <set>
#include <sstream>

#include "loop_impl.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/first_few.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {

std::string TrainLoop::trained_names() const {
  std::vector<std::string> names;
  for (const auto& p : parts_.task->parameters())
    if (parts_.optimizer->parameters().find(p.name) != nullptr) names.push_back(p.name);
  return join(names, "\n");
}

void TrainLoop::refresh_parameters() {
  const auto all = parts_.task->parameters();
  check(std::any_of(all.begin(), all.end(), [](const Parameter& p) { return p.value.requires_grad(); }), ErrorKind::Usage,
        "TrainLoop::refresh_parameters", "no parameter requires a gradient: there is nothing left to train");
  if (trained_at_start_.empty()) trained_at_start_ = trained_names();
  const auto before = parts_.optimizer->parameters().numel();
  parts_.optimizer->set_parameters(parts_.strategy->setup(parts_.precision->refresh(all)));
  if (parts_.ema != nullptr) parts_.ema->set_parameters(parts_.optimizer->parameters());
  const auto now = parts_.optimizer->parameters().numel();
  if (now != before) log_info(with_commas(now), " parameters are trained from now on, ", with_commas(before), " before");
}

void TrainLoop::train_only(const std::string& names) {
  std::set<std::string> trained;
  std::istringstream lines(names);
  for (std::string name; std::getline(lines, name);) trained.insert(name);
  for (const auto& p : parts_.task->parameters()) p.value.set_requires_grad(trained.count(p.name) != 0);
  refresh_parameters();
}

void TrainLoop::warn_of_untrained() {
  if (untrained_warned_) return;
  std::vector<std::string> names;
  for (const auto& p : parts_.task->parameters())
    if (p.value.requires_grad() && parts_.optimizer->parameters().find(p.name) == nullptr) names.push_back(p.name);
  if (names.empty()) return;
  untrained_warned_ = true;
  log_warning(names.size(), names.size() == 1 ? " parameter requires" : " parameters require", " a gradient and ",
              names.size() == 1 ? "is" : "are", " not trained (", detail::first_few(names, 3),
              "): frozen when the run was set up; hint: call TrainLoop::refresh_parameters() after requires_grad is changed");
}

}  // namespace npu_train
