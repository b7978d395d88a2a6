// Callbacks that programs add, in the order in which they were added, and their state by name.
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

// Prefix of the part of a checkpoint with the state of a callback; the name of the callback follows.
constexpr const char* kCallbackPart = "callbacks.";

class CallbackList {
 public:
  // Adds a callback, and loads the state that was kept for it. Error(Usage) for nullptr, for a name that another one has, and for one that
  // cannot be part of a file name.
  void add(std::shared_ptr<Callback> callback);
  bool empty() const { return callbacks_.empty(); }
  // Calls `fn` with each callback, in order; without those for the main rank only, unless `is_main`. Other exceptions become Error(Usage).
  template <class Fn>
  void call(bool is_main, Fn&& fn) const {
    for (const auto& c : callbacks_)
      if (is_main || !c->main_rank_only()) translated("Callback", ErrorKind::Usage, [&] { fn(*c); });
  }

  // Called before an epoch. Error(Usage) if the state of a new callback cannot be saved. Logs one warning for each kept state.
  void check_states();

  // Adds the state of each callback that has a name, and the kept states.
  void save(RunState& out) const;
  // Loads the states, except parts that `leave_out` names.
  void load(const RunState& saved, const std::vector<std::string>& leave_out);

 private:
  std::vector<std::shared_ptr<Callback>> callbacks_;
  size_t checked_ = 0;                 // number of callbacks that check_states() has checked
  std::map<std::string, State> kept_;  // states by name, of callbacks that this run does not have
  std::set<std::string> reported_;     // kept states with a warning
};

}  // namespace npu_train::detail
