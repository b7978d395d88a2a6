#include "npu_train/tools/checklist/checklist.hpp"

#include <algorithm>

namespace npu_train {

const char* item_state_name(ItemState state) {
  switch (state) {
    case ItemState::Done:
      return "done";
    case ItemState::NotDone:
      return "not done";
    case ItemState::NotChecked:
      return "not checked";
    case ItemState::ByHand:
      break;
  }
  return "by hand";
}

size_t Checklist::count(ItemState state) const {
  return static_cast<size_t>(std::count_if(items.begin(), items.end(), [&](const ChecklistItem& i) { return i.state == state; }));
}

std::string Checklist::summary() const {
  return std::to_string(count(ItemState::Done)) + " of " + std::to_string(items.size()) + " done, " +
         std::to_string(count(ItemState::NotDone)) + " not done, " + std::to_string(count(ItemState::NotChecked)) + " not checked, " +
         std::to_string(count(ItemState::ByHand)) + " by hand";
}

Report report_of(const Checklist& checklist) {
  const auto done = checklist.count(ItemState::Done), failed = checklist.count(ItemState::NotDone), all = checklist.items.size();
  const auto summary = checklist.summary();
  Report out("Migration to " + checklist.device, Json::object({{"device", checklist.device}, {"summary", summary}}));
  out.verdict("migration to " + checklist.device + ": " + summary, Tone::Plain, ReportIn::Text);
  out.verdict(done == all  ? "The migration is complete: all " + std::to_string(all) + " items are done"
              : failed > 0 ? "The migration is not complete: " + summary
                           : "No check failed, but the migration is not complete: " + summary,
              done == all  ? Tone::Good
              : failed > 0 ? Tone::Bad
                           : Tone::Warn,
              ReportIn::Page);
  ReportTable items{.layout = ReportTable::Layout::GroupedList};
  for (const auto& i : checklist.items) {
    const auto tone = i.state == ItemState::Done ? Tone::Good : i.state == ItemState::NotDone ? Tone::Bad : Tone::Plain;
    items.add({both("stage", i.stage), both("state", toned(item_state_name(i.state), tone)), both("item", i.item),
               both("evidence", "observation", i.evidence), both("next", "action", i.next)});
  }
  out.table("items", std::move(items));
  return out;
}

}  // namespace npu_train
