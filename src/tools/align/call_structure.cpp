#include <algorithm>
#include <cmath>

#include "npu_train/core/text.hpp"
#include "tools/align/divergence_walk.hpp"

namespace npu_train::detail {
namespace {

// Returns a key that consists of all known statistics of a value. Values with equal keys are considered to be the same tensor.
std::string key_of(const ItemComparison& item) {
  std::string key;
  for (const auto* i : {&item.item_a, &item.item_b})
    for (const auto& number : {i->max, i->min, i->mean, i->norm}) {
      const double value = number.value_or(0);
      key.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
  return key;
}

}  // namespace

bool two_sided(const CallComparison& call) { return !call.a.empty() && !call.b.empty(); }
bool of_optimizer(const CallComparison& call) { return call.layer.starts_with("optimizer"); }
bool of_loss(const CallComparison& call) {
  const auto type = to_lower(call.type);
  return call.layer == "loss" || type.find("loss") != std::string::npos || type.starts_with("cross_entropy");
}
bool in_forward(const CallComparison& call) { return call.direction == "forward" && !of_optimizer(call); }
bool in_network(const CallComparison& call) { return two_sided(call) && (in_forward(call) || call.direction == "backward"); }

std::string error_text(double error) { return std::isinf(error) ? "no finite number" : printed("%.3g", error); }

std::string place_of(const Divergence& d) {
  return (d.layer.empty() ? d.call : d.layer) + (d.layer_b.empty() ? "" : ", which is " + d.layer_b + " in B,") + " (" + d.type + ", " +
         d.direction + ", step " + std::to_string(d.step) + ")";
}

Divergence divergence_at(const StepComparison& step, const CallComparison& call) {
  Divergence d;
  d.found = true;
  d.step = step.step;
  d.rank = step.rank;
  d.call = call.a.empty() ? call.b : call.a;
  d.layer = call.layer;
  d.layer_b = call.layer_b;
  d.type = call.type;
  d.direction = call.direction;
  d.input_error = call.input_error;
  d.output_error = call.output_error;
  return d;
}

bool zero_on_one_side(const CallComparison& call) {
  const auto zero = [](const DumpItem& i) { return i.max && i.min && *i.max == 0 && *i.min == 0; };
  return std::any_of(call.items.begin(), call.items.end(), [&](const ItemComparison& i) {
    return i.error > 0 && std::isfinite(i.error) && i.item_a.max && i.item_b.max && zero(i.item_a) != zero(i.item_b);
  });
}

bool is_batch_norm(const std::string& type) { return to_lower(type).find("batchnorm") != std::string::npos; }

bool is_norm(const CallComparison& call) { return to_lower(call.type).find("norm") != std::string::npos; }

bool is_activated(const CallComparison& call, bool in_a) {
  return std::any_of(call.items.begin(), call.items.end(), [&](const ItemComparison& i) {
    const auto& min = in_a ? i.item_a.min : i.item_b.min;
    return i.side == "output" && (min                                      ? *min
                                  : i.kind == ItemComparison::Kind::Tensor ? (in_a ? i.metrics.min_a : i.metrics.min_b)
                                                                           : -1) >= 0;
  });
}

CallStructure::CallStructure(const StepComparison& step, const DumpStep& a) {
  constexpr int kDeepest = 64;
  std::map<std::string, std::string> parents;
  for (const auto& call : a.calls) parents[call.name] = call.parent;
  for (const auto& call : step.calls) {
    if (!in_network(call)) continue;
    auto up = parents.find(call.a);
    for (int depth = 0; depth < kDeepest && up != parents.end() && !up->second.empty(); ++depth) {
      auto& worst = inside_.emplace(up->second, 0.0).first->second;
      worst = std::max(worst, call.output_error);
      up = parents.find(up->second);
    }
  }
  for (const auto& call : step.calls)
    if (in_network(call) && call.direction == "backward" && !is_around(call))
      for (const auto& item : call.items)
        if (item.side == "output") last_[key_of(item)] = &call;
}

double CallStructure::into(const CallComparison& call) const {
  const auto found = inside_.find(call.a);
  return found == inside_.end() ? call.input_error : std::max(call.input_error, found->second);
}

double CallStructure::out_of(const CallComparison& call) const {
  if (call.direction != "backward" || is_around(call)) return call.output_error;
  double out = 0;
  for (const auto& item : call.items) {
    if (item.side != "output") continue;
    const auto last = last_.find(key_of(item));
    if (!item.item_b.norm || last == last_.end() || last->second == &call) out = std::max(out, item.error);
  }
  return out;
}

}  // namespace npu_train::detail
