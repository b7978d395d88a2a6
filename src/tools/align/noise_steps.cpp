#include "tools/align/noise_steps.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/tensor_file.hpp"
#include "tools/align/divergence_walk.hpp"

namespace npu_train::detail {
namespace {

using Kind = ItemComparison::Kind;

constexpr double kAgrees = 10;      // a difference of gradients up to this multiple of the noise counts as agreement
constexpr double kTimesNoise = 1;   // gradients are noise up to this multiple of the noise, times the layer's largest gradient
constexpr double kMomentum = 10;    // number of steps of SGD that momentum accumulates
constexpr double kFew = 2e-3;       // largest share of the elements of a weight that counts as few
constexpr double kTimesRate = 2.1;  // largest difference between two Adam steps, in learning rates

double largest(const DumpItem& item) { return std::max(std::abs(item.max.value_or(0)), std::abs(item.min.value_or(0))); }

std::string behind(const std::string& text, const std::string& front) { return text.starts_with(front) ? text.substr(front.size()) : ""; }

// Returns the values of an item in row-major order; an undefined tensor if they cannot be read.
at::Tensor read_values(const DumpStep& step, const DumpItem& item) {
  try {
    const auto file = TensorFile::open(step.file_of(item));
    auto out = at::empty({file.numel()}, at::TensorOptions().dtype(file.dtype()));
    file.read(0, file.numel(), out.mutable_data_ptr());
    return out;
  } catch (const Error&) {  // the judge has reported the error
    return {};
  }
}

class StepNoise {
 public:
  StepNoise(StepComparison& step, const DumpStep& a, const DumpStep& b, double noise) : step_(step), a_(a), b_(b), noise_(noise) {
    for (const auto& call : step.calls) {
      if (!two_sided(call) || !of_optimizer(call)) continue;
      for (const auto& item : call.items) {
        if (const auto name = behind(item.a, call.a + ".parameters."); !name.empty()) parameters_.insert(name);
        if (item.a.ends_with(".lr") && item.b.ends_with(".lr"))
          rate = std::max({rate, decimal_number(item.item_a.value).value_or(0), decimal_number(item.item_b.value).value_or(0)});
        adaptive |= item.a.find(".exp_avg_sq/") != std::string::npos;
      }
    }
  }

  double rate = 0;
  bool adaptive = false;  // whether the optimizer divides gradients by their magnitude

  // Returns the name of the parameter if the item is a weight, its gradient or its optimizer state; "" for other values.
  std::string parameter_of(const CallComparison& call, const ItemComparison& item) const {
    if (of_optimizer(call)) {
      if (item.side == "parameters") return behind(item.a, call.a + ".parameters.");
      const auto slash = item.a.find('/');
      return item.side == "output" && slash != std::string::npos ? item.a.substr(slash + 1) : "";
    }
    if (!item.item_a.parameter.empty()) return parameters_.count(item.item_a.parameter) != 0 ? item.item_a.parameter : "";
    std::string key;
    if (call.direction == "parameters_grad") key = behind(item.a, call.a + ".");
    if (item.side == "parameters") key = behind(item.a, call.a + ".parameters.");
    if (key.empty()) return "";
    for (auto name : {call.layer + "." + key, layer_of(call.layer) + "." + key, key})
      if (parameters_.count(name) != 0) return name;
    return "";
  }

  // For the parameters that differ, learns from the gradients of this step which elements are noise.
  template <class Known>
  void learn(Known& known) const {
    std::set<std::string> needed;
    for (const auto& call : step_.calls)
      for (const auto& item : call.items)
        if (two_sided(call) && matters(item)) needed.insert(parameter_of(call, item));
    for (const auto& call : step_.calls) {
      if (!two_sided(call) || call.direction != "parameters_grad") continue;
      double most = 0;
      for (const auto& item : call.items) most = std::max({most, largest(item.item_a), largest(item.item_b)});
      const double limit = kTimesNoise * noise_ * most;
      for (const auto& item : call.items)
        if (const auto name = parameter_of(call, item); needed.count(name) != 0 && limit > 0) learn_from(name, item, limit, known[name]);
    }
  }

  // Omits elements that are known to be noise.
  template <class Elements>
  void leave_out(CallComparison& call, ItemComparison& item, const Elements& known, double most_of_weights) const {
    const double before = item.error;
    const bool weight = item.side == "parameters";
    const double most = weight ? most_of_weights : 2 * known.limit;
    if (item.kind == Kind::Tensor)
      leave_out_values(item, known.noise, most);
    else if (!known.noise.empty())
      leave_out_whole(item, known, most);
    else
      leave_out_few(item, known, most, step_.step + 1);
    if (item.noise_elements > 0 && weight) call.noise_error = std::max(call.noise_error, before);
  }

  bool matters(const ItemComparison& item) const {
    return (item.kind == Kind::Tensor || item.kind == Kind::Statistics) && item.error > noise_ && std::isfinite(item.error);
  }

 private:
  template <class Elements>
  void learn_from(const std::string& name, const ItemComparison& item, double limit, Elements& known) const {
    known.limit = std::max(known.limit, limit);
    known.few |= adaptive && item.kind == Kind::Statistics && item.error <= kAgrees * noise_;
    if (item.kind == Kind::Statistics) {  // here, noise may be all elements, or the third that is known to be noise (the bias of the key)
      const bool whole = std::max(largest(item.item_a), largest(item.item_b)) <= limit && item.error > 0;
      const bool third = name.ends_with("in_proj_bias") && item.error <= kAgrees * noise_;
      if (whole || third) known.noise.assign(1, true);
      known.share = whole ? 1 : 3;
      return;
    }
    if (item.kind != Kind::Tensor) return;
    const auto a = read_values(a_, item.item_a), b = read_values(b_, item.item_b);
    if (!a.defined() || !b.defined() || a.numel() != b.numel()) return;
    const auto x = a.to(at::kFloat), y = b.to(at::kFloat);
    known.noise.resize(static_cast<size_t>(x.numel()));
    const auto *p = x.const_data_ptr<float>(), *q = y.const_data_ptr<float>();
    for (size_t i = 0; i < known.noise.size(); ++i)  // equal gradients cause equal steps
      if (p[i] != q[i] && std::abs(p[i]) <= limit && std::abs(q[i]) <= limit) known.noise[i] = true;
  }

  void leave_out_values(ItemComparison& item, const std::vector<bool>& noise, double most) const {
    const auto a = read_values(a_, item.item_a), b = read_values(b_, item.item_b);
    if (!a.defined() || !b.defined() || a.numel() != b.numel() || static_cast<size_t>(a.numel()) != noise.size()) return;
    const auto x = a.to(at::kDouble), y = b.to(at::kDouble);
    const auto *p = x.const_data_ptr<double>(), *q = y.const_data_ptr<double>();
    auto keep = at::empty({a.numel()}, at::TensorOptions().dtype(at::kBool));
    auto* kept = keep.mutable_data_ptr<bool>();
    int64_t left_out = 0;
    for (size_t i = 0; i < noise.size(); ++i) {
      kept[i] = !noise[i] || p[i] == q[i] || !(std::abs(p[i] - q[i]) <= most);
      left_out += !kept[i];
    }
    if (left_out == 0) return;
    item.noise_elements = left_out;
    const double all = item.partial ? y.norm().item<double>() : item.metrics.norm_b;
    item.partial = false;  // from here on, the complete values are compared
    item.metrics = compare_tensors(a.masked_select(keep), b.masked_select(keep));
    if (item.metrics.nonfinite_mismatch > 0 || !std::isfinite(item.metrics.relative_norm)) return;
    // The error is relative to the norm of all values, since the remaining values may be negligible.
    item.error = all > 0 ? item.metrics.euclidean / all : item.metrics.relative_norm;
  }

  // If only statistics are known, accepts a weight of which a few elements have moved differently in `steps` steps. All other elements
  // moved alike, so the norm agrees.
  template <class Elements>
  static void leave_out_few(ItemComparison& item, const Elements& known, double most, int64_t steps) {
    const auto &a = item.item_a, &b = item.item_b;
    double elements = 1;
    for (const auto n : b.shape) elements *= static_cast<double>(n);
    if (!known.few || item.side != "parameters" || elements < 1 || !a.mean || !b.mean || !a.norm || !b.norm) return;
    const double share = std::max(kFew, 1 / elements) * static_cast<double>(steps);
    const auto alike = [&](double x, double y) { return std::abs(x - y) <= share * std::max(std::abs(x), std::abs(y)); };
    const bool most_agree =
        alike(*a.norm, *b.norm) && alike(a.max.value_or(0), b.max.value_or(0)) && alike(a.min.value_or(0), b.min.value_or(0));
    if (!most_agree || !(std::abs(*a.mean - *b.mean) <= share * most)) return;
    item.noise_elements = std::max<int64_t>(1, std::llround(std::abs(*a.mean - *b.mean) * elements / most));
    item.error = 0;
  }

  // If only statistics are known, accepts a parameter that is noise completely, or in a part that the statistics cannot separate.
  template <class Elements>
  static void leave_out_whole(ItemComparison& item, const Elements& known, double most) {
    const auto near = [&](const std::optional<double>& a, const std::optional<double>& b) { return a && b && std::abs(*a - *b) <= most; };
    const auto &a = item.item_a, &b = item.item_b;
    if (known.noise.size() != 1 || !near(a.max, b.max) || !near(a.min, b.min) || !near(a.mean, b.mean)) return;
    item.noise_elements = 1;
    for (const auto n : b.shape) item.noise_elements *= n;
    item.noise_elements /= known.share;
    item.error = 0;
  }

  StepComparison& step_;
  const DumpStep &a_, &b_;
  double noise_;
  std::set<std::string> parameters_;
};

}  // namespace

void NoiseSteps::set_aside(StepComparison& step, const DumpStep& a, const DumpStep& b, double noise) {
  StepNoise found(step, a, b, noise);
  auto& rank = ranks_[step.rank];
  rank.rate = std::max(rank.rate, found.rate);
  if (rank.rate == 0) return;  // without an optimizer there are no steps
  found.learn(rank.known);
  const double rates = kTimesRate * rank.rate * static_cast<double>(step.step + 1);
  for (auto& call : step.calls)
    for (auto& item : call.items) {
      if (!two_sided(call) || !found.matters(item)) continue;
      const auto known = rank.known.find(found.parameter_of(call, item));
      if (known != rank.known.end() && (known->second.few || !known->second.noise.empty()))
        found.leave_out(call, item, known->second, rates * (found.adaptive ? 1 : kMomentum * known->second.limit));
    }
}

}  // namespace npu_train::detail
