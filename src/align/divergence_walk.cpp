#include "align/divergence_walk.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace npu_train::detail {
namespace {

using Kind = ItemComparison::Kind;
using Cause = Divergence::Cause;

constexpr double kJump = 10;        // of the error, that rounding does not explain
constexpr double kOutlier = 1.4;    // amplification over what is usual for the class of layer
constexpr double kVanished = 1e-3;  // share of an error that is left of one that does not go on
constexpr size_t kPeers = 4;        // layers that make it usual

bool has_kind(const CallComparison& call, Kind kind) {
  return std::any_of(call.items.begin(), call.items.end(), [&](const ItemComparison& i) { return i.kind == kind; });
}

// Zeros on one side alone are no rounding.
bool zero_on_one_side(const CallComparison& call) {
  const auto zero = [](const DumpItem& i) { return i.max && i.min && *i.max == 0 && *i.min == 0; };
  return std::any_of(call.items.begin(), call.items.end(), [&](const ItemComparison& i) {
    return i.error > 0 && i.item_a.max && i.item_b.max && zero(i.item_a) != zero(i.item_b);
  });
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The bits of all that is known of a value: equal for one tensor.
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
bool in_network(const CallComparison& call) {
  return two_sided(call) && !of_optimizer(call) && (call.direction == "forward" || call.direction == "backward");
}

std::string error_text(double error) {
  char text[32];
  if (std::isinf(error)) return "not finite or of another shape";
  std::snprintf(text, sizeof text, "%.3g", error);
  return text;
}

Divergence divergence_at(const StepComparison& step, const CallComparison& call) {
  Divergence d;
  d.found = true;
  d.step = step.step;
  d.rank = step.rank;
  d.call = call.a;
  d.layer = call.layer;
  d.type = call.type;
  d.direction = call.direction;
  d.input_error = call.input_error;
  d.output_error = call.output_error;
  return d;
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

double kink_error(double forward_error) {
  constexpr double kTimes = 5;
  return kTimes * std::sqrt(forward_error);
}

namespace {

class Walker {
 public:
  Walker(const StepComparison& step, const DumpStep& a, bool exact) : step_(step), structure_(step, a), exact_(exact) {
    std::vector<double> weights;
    for (const auto& call : step.calls)
      if (in_network(call) && has_parameters(call)) weights.push_back(call.parameter_error);
    if (!exact && step.step > 0) drift_ = median(weights);
    double later = -1;
    goes_on_.resize(step.calls.size());
    for (size_t i = step.calls.size(); i-- > 0;) {
      const auto& call = step.calls[i];
      goes_on_[i] = later;
      if (in_network(call) && call.direction == "forward" && takes_inputs(call) && !structure_.is_around(call))
        later = std::max(later, call.input_error);
    }
  }

  Walk run() {
    const auto found = first();
    return {found, worst("forward"), vanished_};
  }

 private:
  Divergence first() {
    if (auto found = visit_all("forward"); found.found) return found;
    if (auto found = gradients(/*only_zeros=*/true); found.found) return found;
    if (auto found = visit_all("backward"); found.found) return found;
    if (auto found = gradients(/*only_zeros=*/false); found.found) return found;
    if (auto found = optimizer(); found.found) return found;
    return outlier();
  }

  static bool takes_inputs(const CallComparison& call) {
    return std::any_of(call.items.begin(), call.items.end(), [](const auto& i) { return i.side == "input"; });
  }
  static bool has_parameters(const CallComparison& call) {
    return std::any_of(call.items.begin(), call.items.end(), [](const auto& i) { return i.side == "parameters"; });
  }

  // Errors that rounding explains.
  double limit(const CallComparison& call) const {
    if (exact_) return 0;
    const double rounding = kJump * call.noise;
    return call.direction == "forward" ? rounding : std::max(rounding, kink_error(worst("forward")));
  }
  double worst(const std::string& direction) const {
    const auto found = worst_output_.find(direction);
    return found == worst_output_.end() ? 0 : found->second;
  }

  Divergence make(const CallComparison& call, Cause cause, double in, double out) const {
    auto d = divergence_at(step_, call);
    d.cause = cause;
    d.input_error = in;
    d.output_error = out;
    return d;
  }

  Divergence visit_all(const std::string& direction) {
    for (size_t i = 0; i < step_.calls.size(); ++i) {
      const auto& call = step_.calls[i];
      if (!in_network(call) || call.direction != direction) continue;
      if (auto found = visit(call, goes_on_[i]); found.found) return found;
      if (vanishing_.count(&call) != 0) continue;
      auto& worst_yet = worst_output_[direction];
      worst_yet = std::max(worst_yet, structure_.out_of(call));
    }
    return {};
  }

  // `later`: the largest error that a later call of the forward is given; -1 where there is none.
  Divergence visit(const CallComparison& call, double later) {
    const double most = limit(call);
    // running errors stand for inputs that are not shown (the loss), that are of another place of the network (see below), and for those
    // of which statistics alone are known
    const bool another_place = call.direction == "backward" && vanished_.count(call.layer) != 0;
    double in = takes_inputs(call) && !another_place ? structure_.into(call) : worst(call.direction);
    if (!exact_ && has_kind(call, Kind::Statistics)) in = std::max(in, worst(call.direction));
    if (call.direction == "forward") {
      if (call.parameter_error > std::max(most, kJump * drift_)) return make(call, Cause::Weights, call.parameter_error, call.output_error);
      if (!exact_) in = std::max(in, call.parameter_error);
    }
    // an error that came in with the input was made before, seen in an output or not
    const bool inherited = structure_.is_around(call) || !takes_inputs(call) || another_place ||
                           in <= kJump * std::max({worst(call.direction), worst("forward"), call.parameter_error});
    if (in > most && !inherited) return make(call, any_before_ ? Cause::Before : Cause::Input, in, call.output_error);
    any_before_ = true;
    const double out = structure_.out_of(call), explained = kJump * std::max(in, exact_ ? 0 : call.noise);
    if (out <= most || out <= explained) return {};
    // what nothing behind it is given is another way to say the same: a norm with and without the activation that a kernel fuses to it
    if (!exact_ && call.direction == "forward" && later >= 0 && std::isfinite(out) && later <= std::max(explained, kVanished * out)) {
      vanishing_.insert(&call);
      vanished_.insert(call.layer);
      return {};
    }
    return make(call, std::isinf(out) ? Cause::NotFinite : Cause::Layer, in, out);
  }

  // A layer whose gradients differ though all that they are computed from agrees. Errors run from the loss to the first layer: the last of
  // several is nearest to where it began.
  Divergence gradients(bool only_zeros) const {
    std::map<std::string, double> into;
    bool know_backward = false;
    for (const auto& call : step_.calls) {
      if (!in_network(call)) continue;
      into[call.layer] = std::max(into[call.layer], call.input_error);
      know_backward |= call.direction == "backward";
    }
    Divergence out;
    for (const auto& call : step_.calls) {
      if (!two_sided(call) || call.direction != "parameters_grad" || call.output_error <= limit(call)) continue;
      const auto found = into.find(call.layer);
      const double in = found == into.end() ? 0 : found->second;
      const bool stands_out =
          only_zeros ? zero_on_one_side(call) && in < 0.5 : call.output_error > kJump * std::max(in, exact_ ? 0 : call.noise);
      if (know_backward ? found != into.end() && stands_out : !only_zeros) out = make(call, Cause::Gradient, in, call.output_error);
    }
    return out;
  }

  Divergence optimizer() const {
    double gradient = 0;
    for (const auto& call : step_.calls)
      if (two_sided(call) && call.direction == "parameters_grad") gradient = std::max(gradient, call.output_error);
    for (const auto& call : step_.calls) {
      if (!two_sided(call) || !of_optimizer(call)) continue;
      const double error = std::max({call.parameter_error, call.output_error, call.input_error});
      if (error > limit(call) && error > kJump * std::max({gradient, drift_, exact_ ? 0 : call.noise}))
        return make(call, Cause::Optimizer, gradient, error);
    }
    return {};
  }

  // A mistake that is hardly larger than the rounding that reaches it: the one layer that amplifies unlike the others of its class.
  Divergence outlier() const {
    struct Amplification {
      const CallComparison* call;
      double times;
    };
    std::map<std::string, std::vector<Amplification>> classes;
    for (const auto& call : step_.calls)
      if (in_network(call) && call.direction == "forward" && has_kind(call, Kind::Tensor) && takes_inputs(call) &&
          !structure_.is_around(call) && vanishing_.count(&call) == 0 && call.output_error > call.noise)
        classes[call.type].push_back({&call, call.output_error / std::max({call.input_error, call.parameter_error, call.noise / 4})});
    const CallComparison* found = nullptr;
    double most = 1, next = 1;
    for (const auto& [type, calls] : classes) {
      if (calls.size() < kPeers) continue;
      std::vector<double> times;
      for (const auto& c : calls) times.push_back(c.times);
      const double usual = std::max(1.0, median(times));
      for (const auto& c : calls) {
        const double over = c.times / usual;
        if (over > most)
          next = std::exchange(most, over), found = c.call;
        else
          next = std::max(next, over);
      }
    }
    if (found == nullptr || most < kOutlier || std::log(most) < 2 * std::log(next)) return {};
    auto d = make(*found, Cause::Layer, found->input_error, found->output_error);
    d.sentence = d.layer + " (" + d.type + ", forward, step " + std::to_string(d.step) + ") amplifies the error of its inputs from " +
                 error_text(d.input_error) + " to " + error_text(d.output_error) + ", which no other layer of its class does";
    return d;
  }

  const StepComparison& step_;
  CallStructure structure_;
  bool exact_;
  bool any_before_ = false;
  double drift_ = 0;             // of the weights, by steps before
  std::vector<double> goes_on_;  // by call, see visit
  std::map<std::string, double> worst_output_;
  std::set<const CallComparison*> vanishing_;  // whose errors do not go on
  std::set<std::string> vanished_;             // their layers
};

}  // namespace

Walk walk(const StepComparison& step, const DumpStep& a, bool exact) { return Walker(step, a, exact).run(); }

}  // namespace npu_train::detail
