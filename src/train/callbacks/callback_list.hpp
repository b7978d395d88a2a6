// The callbacks that programs add, in the order in which they were added, and their state by name.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/train/callback.hpp"
#include "npu_train/train/checkpoint.hpp"

namespace npu_train::detail {

// + the name of a callback: the part of a checkpoint that has its state.
constexpr const char* kCallbackPart = "callbacks.";

class CallbackList {
 public:
  // Error(Usage) for nullptr, a name that another one has, or one that cannot be part of a file name. Loads the state that was kept for it.
  void add(std::shared_ptr<Callback> callback);
  bool empty() const { return callbacks_.empty(); }
  // Each, in order; without those of the main rank if this is another. An exception that is no Error becomes one of the kind Usage.
  template <class Fn>
  void call(bool is_main, Fn&& fn) const {
    for (const auto& c : callbacks_)
      if (is_main || !c->main_rank_only()) translated("Callback", ErrorKind::Usage, [&] { fn(*c); });
  }

  // Before an epoch. Error(Usage) if the state of a new callback cannot be saved; one warning for each state that no callback has taken.
  void check_states();

  // Adds the part of each callback that has a name, and those that are kept.
  void save(RunState& out) const;
  // Without the parts that `leave_out` names.
  void load(const RunState& saved, const std::vector<std::string>& leave_out);

 private:
  std::vector<std::shared_ptr<Callback>> callbacks_;
  size_t checked_ = 0;                 // so many of them have a state that can be saved
  std::map<std::string, State> kept_;  // by name, of callbacks that this run does not have
  std::set<std::string> reported_;     // of them
};

}  // namespace npu_train::detail
