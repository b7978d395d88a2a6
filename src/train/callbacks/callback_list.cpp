#include "train/callbacks/callback_list.hpp"

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"

namespace npu_train {

void Callback::load_state(const State& state) {
  check(state.empty(), ErrorKind::Usage, "Callback", "there is a state of '", name(),
        "', which has no load_state(); hint: override state() and load_state() together");
}

namespace detail {
namespace {

constexpr const char* kCallback = "Callback";
constexpr size_t kLongest = 100;

void check_name(const std::string& name) {
  const bool plain = name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == std::string::npos;
  check(plain && name.size() <= kLongest, ErrorKind::Usage, kCallback, "the name '", name, "' is not valid; allowed: at most ", kLongest,
        " letters, digits, '_', '-' and '.', because it is part of the name of a file");
}

// Returns a copy that the owner of `state` cannot change.
State copied(const State& state) {
  auto out = state;
  for (auto& [name, tensor] : out.tensors) tensor = tensor.detach().clone();
  return out;
}

State checked_state(const Callback& callback) {
  const auto name = callback.name();
  auto state = callback.state();
  check(!name.empty() || state.empty(), ErrorKind::Usage, kCallback, "a callback has a state (",
        state.values.empty() ? state.tensors.begin()->first : state.values.begin()->first,
        ", ...) and no name; hint: override Callback::name(), the state is saved under it");
  for (const auto& [key, tensor] : state.tensors)
    check(tensor.defined(), ErrorKind::Usage, kCallback, "the tensor '", key, "' in the state of '", name,
          "' is undefined; hint: leave it out of state() until it has a value");
  return state;
}

}  // namespace

void CallbackList::add(std::shared_ptr<Callback> callback) {
  check(callback != nullptr, ErrorKind::Usage, kCallback, "the callback is nullptr");
  const auto name = callback->name();
  check_name(name);
  const bool taken = std::any_of(callbacks_.begin(), callbacks_.end(), [&](const auto& c) { return !name.empty() && c->name() == name; });
  check(!taken, ErrorKind::Usage, kCallback, "there is a callback '", name,
        "' already; allowed: one of a name, because its state is saved under it");
  if (const auto kept = kept_.find(name); kept != kept_.end()) {
    callback->load_state(kept->second);
    kept_.erase(kept);
  }
  callbacks_.push_back(std::move(callback));
}

void CallbackList::check_states() {
  for (; checked_ < callbacks_.size(); ++checked_) checked_state(*callbacks_[checked_]);
  for (const auto& [name, state] : kept_)
    if (reported_.insert(name).second)
      log_warning(
          "the checkpoint has the state of a callback '", name,
          "', which this run does not have: the state is kept in the run's checkpoints; hint: add the callback to continue from it");
}

void CallbackList::save(RunState& out) const {
  for (const auto& [name, state] : kept_) out[kCallbackPart + name] = state;
  for (const auto& c : callbacks_) {
    auto state = checked_state(*c);
    if (const auto name = c->name(); !name.empty()) out[kCallbackPart + name] = std::move(state);
  }
}

void CallbackList::load(const RunState& saved, const std::vector<std::string>& leave_out) {
  const std::string prefix = kCallbackPart;
  kept_.clear();
  for (const auto& [part, state] : saved)
    if (part.starts_with(prefix) && std::find(leave_out.begin(), leave_out.end(), part) == leave_out.end())
      kept_[part.substr(prefix.size())] = copied(state);
  for (const auto& c : callbacks_) {
    const auto name = c->name();
    if (name.empty()) continue;
    if (const auto kept = kept_.find(name); kept != kept_.end()) {
      c->load_state(kept->second);
      kept_.erase(kept);
    } else if (saved.count(prefix + name) == 0) {
      log_info("there is no saved state of the callback '", name, "': it keeps its current state");
    }
  }
}

}  // namespace detail
}  // namespace npu_train
