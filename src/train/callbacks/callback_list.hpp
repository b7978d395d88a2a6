// The callbacks that programs add, in the order of their addition, and their state by name.
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

// Prefix of a callback's part in a checkpoint; the name of the callback follows.
constexpr const char* kCallbackPart = "callbacks.";

class CallbackList {
 public:
  // Adds a callback, and loads the state that was kept for it. Error(Usage) for nullptr, for a name that is already in use, and for a name
  // that cannot be part of a file name.
  void add(std::shared_ptr<Callback> callback);
  bool empty() const { return callbacks_.empty(); }
  // Calls `fn` with each callback, in order; skips those that are for the main rank only, unless `is_main`. Exceptions other than Error
  // become Error(Usage).
  template <class Fn>
  void call(bool is_main, Fn&& fn) const {
    for (const auto& c : callbacks_)
      if (is_main || !c->main_rank_only()) translated("Callback", ErrorKind::Usage, [&] { fn(*c); });
  }

  // Called before an epoch. Error(Usage) if the state of a new callback cannot be saved. Warns once of each kept state.
  void check_states();

  // Adds the state of each callback that has a name, and the kept states.
  void save(RunState& out) const;
  // Loads the states, except parts that `leave_out` names.
  void load(const RunState& saved, const std::vector<std::string>& leave_out);

 private:
  std::vector<std::shared_ptr<Callback>> callbacks_;
  size_t checked_ = 0;                 // number of callbacks that check_states() has checked
  std::map<std::string, State> kept_;  // states by name, of callbacks that this run does not have
  std::set<std::string> reported_;     // kept states for which a warning was logged
};

}  // namespace npu_train::detail
