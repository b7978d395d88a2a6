#include "tools/align/divergence_walk.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/core/median.hpp"
#include "npu_train/core/text.hpp"
#include "tools/align/causes.hpp"

namespace npu_train::detail {
namespace {

using Kind = ItemComparison::Kind;
using Cause = Divergence::Cause;

constexpr double kJump = 10;         // largest factor by which rounding lets an error grow in one call
constexpr double kChaos = 30;        // like kJump, if updates have amplified the rounding in the weights
constexpr double kOutlier = 1.4;     // least amplification of an outlier, relative to the usual one of its class
constexpr double kVanished = 1e-3;   // largest remaining fraction of an error that does not propagate
constexpr double kMostGain = 100;    // largest factor between the relative errors of a loss and of its inputs
constexpr double kEarlier = 2;       // largest growth of the weights' error between an update and the next step
constexpr double kOptions = 1e-6;    // tolerance for numeric options of an optimizer
constexpr double kMostInGaps = 0.1;  // largest gradient error that rounding may cause in calls that are not compared
constexpr size_t kPeers = 4;         // least number of layers of a class from which a usual value is computed

bool has_kind(const CallComparison& call, Kind kind) {
  return std::any_of(call.items.begin(), call.items.end(), [&](const ItemComparison& i) { return i.kind == kind; });
}

// Whether few elements cause the difference, as at a kink of an activation, where they change by their full size. A different loss function
// changes many elements slightly.
bool is_concentrated(const CallComparison& call, double forward_error) {
  constexpr double kTimes = 10;
  return std::any_of(call.items.begin(), call.items.end(), [&](const ItemComparison& i) {
    const auto& m = i.metrics;
    if (i.side != "input" || i.kind != Kind::Tensor || m.rmse == 0) return false;
    const double share = m.mean_abs * m.mean_abs / (m.rmse * m.rmse);
    return share <= kTimes * forward_error + 2 / static_cast<double>(std::max<int64_t>(1, m.elements));
  });
}

Cause cause_of(const CallComparison& call, double error) {
  const bool not_finite = std::any_of(call.items.begin(), call.items.end(), [](const ItemComparison& i) {
    return i.side != "input" && std::isinf(i.error) && (i.kind == Kind::Tensor || i.kind == Kind::Statistics);
  });
  return std::isinf(error) && not_finite ? Cause::NotFinite : Cause::Layer;
}

double largest_output(const CallComparison& call) {
  double out = 0;
  for (const auto& i : call.items)
    if (i.side == "output") out = std::max({out, std::abs(i.item_b.max.value_or(0)), std::abs(i.item_b.min.value_or(0))});
  return out;
}

class Walker {
 public:
  Walker(const StepComparison& step, const DumpStep& a, const DumpStep& b, bool exact) : step_(step), structure_(step, a), exact_(exact) {
    a_fuses_ = fuses_kernels(a);
    fused_on_one_side_ = a_fuses_ != fuses_kernels(b);
    part_ = step.skipped > 0 || is_part(a) || is_part(b);
    gaps_ = leaves_gaps(step, a, b);
    const auto first =
        std::find_if(a.calls.begin(), a.calls.end(), [](const DumpCall& c) { return c.is_module && c.direction == "forward"; });
    if (first != a.calls.end() && !has_gaps(a)) first_call_ = first->name;
    if (part_ && !exact)
      for (const auto& call : step.calls) unseen_ = std::max(unseen_, call.noise);
    std::vector<double> weights;
    for (const auto& call : step.calls)
      if (in_network(call) && has_parameters(call)) {
        if (!std::isfinite(call.parameter_error)) continue;  // drift does not explain an infinite error
        weights.push_back(call.parameter_error);
        weight_error_ = std::max({weight_error_, call.parameter_error, call.noise_error});
      }
    if (!exact && step.earlier_error > 0) {
      jump_back_ = kChaos;
      if (part_) jump_forward_ = kChaos;  // weights that are not compared may have a larger error
    }
    if (!exact && step.step > 0) drift_ = upper_median(weights);
    find_outputs();
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
    return {found, forward_error(), weight_error_, vanished_, unproven_, unproven_update_};
  }

 private:
  Divergence first() {
    if (auto found = visit_all("forward"); found.found) return found;
    if (auto found = missing_gradient(); found.found) return found;
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
    return std::any_of(call.items.begin(), call.items.end(), [](const auto& i) { return i.side == "parameters" && !is_moved(i); });
  }

  // Finds the loss, and how much it may amplify the error of the values from which it is computed.
  void find_outputs() {
    double outputs = 0;
    for (const auto& call : step_.calls) {
      if (!in_network(call) || call.direction != "forward") continue;
      if (of_loss(call))
        loss_ = &call;
      else if (!structure_.is_around(call))
        outputs = largest_output(call);
    }
    const double size = loss_ != nullptr ? largest_output(*loss_) : 1;
    gain_ = std::min(kMostGain, std::max(1.0, outputs) / std::min(1.0, std::max(size, 1 / kMostGain)));
  }

  // Returns the largest error of a call that rounding explains.
  double limit(const CallComparison& call) const {
    if (exact_) return 0;
    const double rounding = kJump * call.noise;
    return call.direction == "forward" ? rounding : std::max(rounding, kink_error(forward_error(), step_.earlier_error > 0));
  }
  // Returns the worst forward error. It is at least the rounding of calls that are not compared.
  double forward_error() const { return std::max(worst("forward"), unseen_); }
  // Returns the limit for the errors of the loss and of the gradients that it computes. It assumes no kinks, since no operator between the
  // outputs and the loss has one.
  double loss_limit(const CallComparison& call) const {
    return exact_ ? kJump * worst("forward") : kJump * gain_ * std::max(call.noise, worst("forward"));
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
      const bool loss = direction == "forward" && of_loss(call);
      if (auto found = loss ? visit_loss(call) : visit(call, goes_on_[i]); found.found) return found;
      if (loss || vanishing_.count(&call) != 0) continue;
      // the error is caused by noise elements of weights, which do not affect the loss
      const bool noise = !exact_ && call.noise_error > structure_.into(call);
      auto& worst_yet = noise ? worst_noise_ : worst_output_[direction];
      worst_yet = std::max(worst_yet, structure_.out_of(call));
    }
    return {};
  }

  // Reports an error of the loss that rounding in the forward pass does not explain.
  Divergence visit_loss(const CallComparison& call) {
    const double in = takes_inputs(call) ? structure_.into(call) : worst("forward");
    const double out = structure_.out_of(call);
    if (out <= std::max(loss_limit(call), exact_ ? 0 : kJump * gain_ * in)) return {};
    return make(call, cause_of(call, out), in, out);
  }

  // Checks the gradient of the outputs, which only the loss computes.
  Divergence visit_first_gradient(const CallComparison& call, double in) const {
    if (exact_ || part_ || in <= loss_limit(call) || is_concentrated(call, worst("forward"))) return {};
    auto d = make(loss_ != nullptr ? *loss_ : call, loss_ != nullptr ? Cause::Layer : Cause::Before, worst("forward"), in);
    d.sentence = "the gradient of the loss with respect to the output of " + call.layer + " (step " + std::to_string(step_.step) + ") " +
                 apart_text(in, call, "input", false) + ", and the outputs up to there by " + error_text(worst("forward")) +
                 ": the losses are different functions";
    return d;
  }

  // `later`: the largest input error of the forward calls after this one; -1 if there is none.
  Divergence visit(const CallComparison& call, double later) {
    if (auto found = options(call); found.found) return found;
    const double most = of_loss(call) ? loss_limit(call) : limit(call);
    // The worst error so far replaces the error of inputs that are missing (the loss), that are at another place of the network (see
    // below), or of which only statistics are known.
    if (call.direction == "forward")
      shown_.insert(call.layer);
    else if (part_ && fused_on_one_side_ && !exact_ && is_batch_norm(call.type) && shown_.count(call.layer) == 0)
      unproven_.insert(call.layer);
    const bool another_place = call.direction == "backward" && (vanished_.count(call.layer) != 0 || unproven_.count(call.layer) != 0);
    double in = takes_inputs(call) && !another_place ? structure_.into(call) : worst(call.direction);
    if (call.direction == "backward" && !std::exchange(any_backward_, true) && takes_inputs(call))
      if (auto found = visit_first_gradient(call, in); found.found) return found;
    if (!exact_ && has_kind(call, Kind::Statistics)) in = std::max(in, worst(call.direction));
    if (call.direction == "forward") {
      if (auto found = this->weights(call); found.found) return found;
    }
    // rounding that updates have amplified is aligned with the inputs, so it changes outputs by more than its size
    const double weights =
        exact_ || !has_parameters(call) ? call.parameter_error : std::max({call.parameter_error, call.noise_error, step_.earlier_error});
    if (!exact_ && call.direction == "forward") in = std::max(in, weights);
    // whether an earlier error explains the error of the input, even if no output showed it
    const bool inherited = structure_.is_around(call) || !takes_inputs(call) || another_place ||
                           in <= kJump * std::max({worst(call.direction), worst("forward"), worst_noise_, weights});
    if (in > most && !inherited && !may_come_in(call, in)) return visit_input(call, in);
    any_before_ = true;
    const double out = structure_.out_of(call);
    const double explained = (call.direction == "backward" ? jump_back_ : jump_forward_) * std::max(in, exact_ ? 0 : call.noise);
    if (const double moved = call.moved_error; moved > std::max(most, explained)) {
      auto d = make(call, Cause::Layer, in, moved);
      d.sentence = "the running statistics of " + call.layer + " (" + call.type + ", step " + std::to_string(step_.step) + ") " +
                   apart_text(moved, call, "parameters", true) + ", its inputs by " + error_text(in);
      return d;
    }
    if (out <= most || out <= explained) return {};
    // on the side where a kernel fuses norm and activation, the output includes the activation; on the other side it does not
    const bool fused = fused_on_one_side_ && !exact_ && call.direction == "forward" && is_norm(call) && is_activated(call, a_fuses_);
    const bool vanishes = later >= 0 && later <= std::max(explained, kVanished * std::min(1.0, out));
    if (fused && std::isfinite(out) && (vanishes || (part_ && later < 0))) {
      vanishing_.insert(&call);
      (vanishes ? vanished_ : unproven_).insert(call.layer);
      return {};
    }
    return make(call, cause_of(call, out), in, out);
  }

  // Whether calls that are not compared may have caused the error, by rounding or, in later steps, by anything that updates have amplified.
  bool may_come_in(const CallComparison& call, double in) const {
    if (!gaps_ || exact_ || !std::isfinite(in) || call.a == first_call_) return false;
    return step_.step > 0 || in <= (call.direction == "forward" ? kink_error(call.noise) : kMostInGaps);
  }

  // Reports an error that is in the input of a call but in no earlier output.
  Divergence visit_input(const CallComparison& call, double in) const {
    const bool within = gaps_ && call.a != first_call_;
    auto d = make(call, any_before_ || within ? Cause::Before : Cause::Input, in, call.output_error);
    if (within)
      d.sentence = "the input of " + place_of(d) + " " + apart_text(in, call, "input", false) +
                   ": the difference arises before it, outside the part that is compared";
    return d;
  }

  // Checks the plain arguments of an operator.
  Divergence options(const CallComparison& call) const {
    if (call.direction != "forward") return {};
    const auto other = std::find_if(call.items.begin(), call.items.end(),
                                    [](const auto& i) { return i.side == "input" && i.kind == Kind::Value && i.failed; });
    if (other == call.items.end()) return {};
    auto d = make(call, Cause::Layer, 0, call.output_error);
    d.sentence = place_of(d) + " is called with different options: " + other->a + " is " + other->message;
    say(d, "operator_option");
    return d;
  }

  // Checks the weights. Before the first update they must be equal or rounded once, since nothing has computed them.
  Divergence weights(const CallComparison& call) const {
    const double drifted = step_.step > 0 ? std::max({kJump * call.noise, kJump * drift_, kEarlier * step_.earlier_error}) : 0;
    const double most = exact_ ? 0 : std::max(drifted, weight_noise(call));
    return call.parameter_error > most || std::isinf(call.parameter_error)
               ? make(call, Cause::Weights, call.parameter_error, call.output_error)
               : Divergence{};
  }
  // Returns the relative rounding error of statistics: devices sum equal values in fp32, each in its own order.
  static double summing_noise(const ItemComparison& item) {
    if (item.kind != Kind::Statistics && !item.partial) return 0;
    double elements = 1;
    for (const auto size : item.item_b.shape) elements *= static_cast<double>(size);
    return 0x1p-24 * std::sqrt(std::max(elements, 1.0));
  }
  static double weight_noise(const CallComparison& call) {
    double out = 0;
    for (const auto& i : call.items)
      if (i.side == "parameters" && i.error > 0) out = std::max({out, noise_of(i.item_a.dtype, i.item_b.dtype), summing_noise(i)});
    return out;
  }

  // Reports a parameter without a gradient on one side. Considers only failed entries; the comparer has marked an entry as failed if that
  // side has the layer.
  Divergence missing_gradient() const {
    for (const auto& call : step_.calls) {
      if (call.direction == "forward") continue;
      for (const auto& i : call.items) {
        const bool none = i.kind == Kind::Unmatched && i.item_a.is_tensor() != i.item_b.is_tensor();
        if (!i.failed || (i.kind != Kind::OneSided && !none)) continue;
        const bool in_a = none ? !i.item_a.is_tensor() : call.a.empty() || (!call.b.empty() && i.a.empty());
        const auto& name = i.a.empty() ? i.b : i.a;
        auto d = make(call, Cause::Gradient, 0, std::numeric_limits<double>::infinity());
        d.sentence = std::string(in_a ? "A" : "B") + " has no gradient of " + call.layer +
                     (two_sided(call) ? "'s " + name.substr(name.rfind('.') + 1) : "") + " (" + call.type + ", " + call.direction +
                     ", step " + std::to_string(step_.step) + "), although " + (in_a ? "B" : "A") + " has one";
        say(d, "gradient_missing");
        return d;
      }
    }
    return {};
  }

  // Returns the error of a layer's inputs. For a module without calls, these are the inputs of its submodules; for a parameter that is not
  // a layer, the inputs of its siblings.
  static std::optional<double> error_into(const std::map<std::string, double>& into, const std::string& layer) {
    if (const auto found = into.find(layer); found != into.end()) return found->second;
    const auto worst_in = [&](const std::string& module) {
      const auto front = module.empty() ? module : module + ".";
      std::optional<double> out;
      for (auto i = into.lower_bound(front); i != into.end() && i->first.starts_with(front); ++i)
        out = std::max(out.value_or(0), i->second);
      return out;
    };
    const auto below = worst_in(layer);
    return below ? below : worst_in(layer_of(layer));
  }

  // Finds a layer whose gradients differ although all values from which they are computed agree. Errors propagate from the loss to the
  // first layer, so the last such layer is nearest to the cause.
  Divergence gradients(bool only_zeros) const {
    std::map<std::string, double> into;
    bool know_backward = false;
    for (const auto& call : step_.calls) {
      if (!in_network(call)) continue;
      into[call.layer] = std::max(into[call.layer], call.input_error);
      know_backward |= call.direction == "backward";
    }
    Divergence out;
    size_t all = 0, found = 0;
    for (const auto& call : step_.calls) {
      if (!two_sided(call) || call.direction != "parameters_grad") continue;
      ++all;
      if (call.output_error <= limit(call)) continue;
      const auto error = error_into(into, call.layer);
      const double in = error.value_or(0);
      const bool stands_out =
          only_zeros ? zero_on_one_side(call) && in < 0.5 : call.output_error > jump_back_ * std::max(in, exact_ ? 0 : call.noise);
      if (know_backward ? !error.has_value() || !stands_out : only_zeros) continue;
      out = make(call, Cause::Gradient, in, call.output_error);
      ++found;
    }
    if (know_backward && !only_zeros && found >= kPeers && found * 10 >= all * 9) all_gradients(out);
    return out;
  }

  // Reports gradients that differ in nearly all layers, so that no single layer is the cause.
  void all_gradients(Divergence& d) const {
    d.sentence = "the gradients of the parameters of all layers differ in step " + std::to_string(step_.step) + ", in " + d.layer + " by " +
                 error_text(d.output_error) + ", although the values from which they are computed agree";
    say(d, step_.step > 0 ? "gradients_kept" : "gradients_scaled");
  }

  // Returns the worst error of the compared gradients.
  double worst_gradient() const {
    double out = 0;
    for (const auto& call : step_.calls)
      if (two_sided(call) && call.direction == "parameters_grad") out = std::max(out, call.output_error);
    return out;
  }

  Divergence optimizer() {
    const double gradient = worst_gradient();
    // the error of gradients that are not compared may be as large as kinks allow
    const double unseen = part_ && !exact_ ? kink_error(forward_error(), step_.earlier_error > 0) : 0;
    for (const auto& call : step_.calls) {
      if (!two_sided(call) || !of_optimizer(call)) continue;
      const bool options = std::any_of(call.items.begin(), call.items.end(),
                                       [](const auto& i) { return i.kind == Kind::Value && i.failed && i.error > kOptions; });
      const double error = std::max({call.parameter_error, call.output_error, call.input_error});
      if (options) return make(call, Cause::Optimizer, gradient, error);
      double noise = exact_ ? 0 : std::max(call.noise, step_.earlier_error);
      if (unseen > 0)
        for (const auto& i : call.items) noise = std::max(noise, summing_noise(i));
      if (error <= limit(call) || error <= jump_back_ * std::max({gradient, drift_, noise})) continue;
      if (error > unseen) return make(call, Cause::Optimizer, gradient, error);
      unproven_update_ = true;
    }
    return {};
  }

  // Finds a fault that is hardly larger than the rounding in the inputs of its layer: the one layer that amplifies errors more than others
  // of its class.
  Divergence outlier() const {
    if (step_.earlier_error > 0 && !exact_) return {};  // the weights differ in many ways; these differences were judged above
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
      const double usual = std::max(1.0, upper_median(times));
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
                 error_text(d.input_error) + " to " + error_text(d.output_error) + "; no other layer of its class does so";
    return d;
  }

  const StepComparison& step_;
  CallStructure structure_;
  bool exact_;
  bool any_before_ = false, any_backward_ = false;
  bool fused_on_one_side_ = false, a_fuses_ = false;
  bool part_ = false;       // not all calls of the step are compared
  bool gaps_ = false;       // calls between the compared ones are missing
  std::string first_call_;  // first call of the network, which receives the data; "" if unknown
  double unseen_ = 0;       // rounding error of calls that are not compared
  const CallComparison* loss_ = nullptr;
  double gain_ = 1;  // amplification of relative errors by the loss, see loss_limit()
  double weight_error_ = 0, worst_noise_ = 0;
  double drift_ = 0;  // median error of the weights, after earlier steps
  double jump_forward_ = kJump;
  double jump_back_ = kJump;     // like jump_forward_, for calls after the forward pass
  std::vector<double> goes_on_;  // by call: the largest input error of later forward calls, see visit()
  std::map<std::string, double> worst_output_;
  std::set<const CallComparison*> vanishing_;  // calls whose errors do not propagate
  std::set<std::string> vanished_, unproven_;  // layers of such calls
  std::set<std::string> shown_;                // layers with a forward call so far
  bool unproven_update_ = false;               // see Walk
};

}  // namespace

double kink_error(double forward_error, bool later) {
  constexpr double kTimes = 8, kTimesLater = 10;
  return (later ? kTimesLater : kTimes) * std::sqrt(forward_error);
}

bool leaves_gaps(const StepComparison& step, const DumpStep& a, const DumpStep& b) {
  return step.skipped > 0 || has_gaps(a) || has_gaps(b);
}

Walk walk(const StepComparison& step, const DumpStep& a, const DumpStep& b, bool exact) { return Walker(step, a, b, exact).run(); }

}  // namespace npu_train::detail
