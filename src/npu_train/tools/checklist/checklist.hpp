/// The progress of a migration: five stages, whose items are checked automatically if possible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {

enum class ItemState {
  Done,        ///< checked in this run, and fulfilled
  NotDone,     ///< checked in this run, and not fulfilled; or the check failed
  NotChecked,  ///< cannot be checked on this machine or with these options
  ByHand,      ///< a person must check
};

/// Returns "done", "not done", "not checked" or "by hand".
const char* item_state_name(ItemState state);

/// One line of the list.
struct ChecklistItem {
  std::string stage;  ///< environment | code | precision | performance | delivery
  std::string item;   ///< the condition
  ItemState state = ItemState::ByHand;
  std::string evidence{};  ///< the observation
  std::string next{};      ///< the next action; "" if none
};

struct ChecklistOptions {
  std::string device = "npu";             ///< target device of the training
  std::string soc = "910B1";              ///< the chip, for the tables of operators
  std::string torch = "2.11";             ///< version of torch_npu
  std::string source{};                   ///< folder with the project's sources; "": not checked
  std::string reference{}, baseline{};    ///< files of `npu_tool baseline`, recorded on the original device and on `device`
  int64_t steps = 3;                      ///< steps per short run
  std::string train{"train_app CONFIG"};  ///< the command that trains the configuration, for manual items
};

struct Checklist {
  std::string device;
  std::vector<ChecklistItem> items;

  size_t count(ItemState state) const;
  /// Returns "7 of 18 done, 6 not done, 1 not checked, 4 by hand".
  std::string summary() const;
};

/// Runs the checks one after another. This takes some minutes for a large model, since steps of the configuration are trained. Only
/// temporary files are written. If a check ends with an Error, its item is not done, with the message as evidence. Errors of the
/// configuration itself are rethrown.
Checklist migration_checklist(const RunConfig& config, const ChecklistOptions& options = {}, const Parts& parts = builtin_parts());

/// Reports the stages with their items, observations and actions.
Report report_of(const Checklist& checklist);

}  // namespace npu_train
