// Detects networks that are similar, but of which one side has more layers or runs the network more often per step.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/core/text.hpp"
#include "tools/align/causes.hpp"
#include "tools/align/divergence_walk.hpp"
#include "tools/align/report_rows.hpp"

namespace npu_train::detail {
namespace {

bool is_forward_layer(const DumpCall& call) {
  return call.is_module && call.direction == "forward" && !call.layer.starts_with("optimizer");
}

bool has_below(const std::set<std::string>& layers, const std::string& module) {
  const auto below = layers.lower_bound(module + ".");
  return below != layers.end() && below->starts_with(module + ".");
}

bool has_part_of(const std::set<std::string>& layers, const std::string& module) {
  return layers.count(module) != 0 || has_below(layers, module);
}

// The layers that only one side has.
struct LoneLayers {
  int64_t count = 0;
  const CallComparison* first = nullptr;
  std::string module;  // outermost module that contains the first layer, and of which the other side has no part
  std::string text(const char* side) const {
    return counted(count, "layer") + " with parameters " + (count == 1 ? "is" : "are") + " in " + side + " only, " +
           (count == 1 ? "in " : "the first in ") + module;
  }
};

LoneLayers lone_layers(const StepComparison& step, const std::set<std::string>& others, bool in_a) {
  LoneLayers out;
  for (const auto& call : step.calls) {
    if (call.direction != "forward" || two_sided(call) || call.a.empty() == in_a || others.count(call.layer) != 0) continue;
    if (call.items.empty() || !call.items[0].failed) continue;  // the layer has no parameters, or was omitted on purpose
    ++out.count;
    if (out.first != nullptr) continue;
    out.first = &call;
    out.module = call.layer;
    for (auto above = layer_of(call.layer); !above.empty() && !has_part_of(others, above); above = layer_of(above)) out.module = above;
  }
  return out;
}

// How often a side runs the network, and on which input.
struct Runs {
  std::map<std::string, int64_t> calls;  // number of calls of each layer with parameters
  std::vector<int64_t> input;            // shape of the first input
};

Runs runs_of(const DumpStep& step) {
  Runs out;
  for (const auto& call : step.calls) {
    if (!is_forward_layer(call) || parameter_elements(call) == 0) continue;
    ++out.calls[call.layer];
    if (!out.input.empty()) continue;
    const auto input = std::find_if(call.items.begin(), call.items.end(), [](const auto& i) { return i.side == "input" && i.is_tensor(); });
    if (input != call.items.end()) out.input = input->shape;
  }
  return out;
}

// Returns how often A and B call a layer, if the ratio of these numbers is the same for all layers; otherwise {1, 1}.
std::pair<int64_t, int64_t> times_of(const Runs& a, const Runs& b) {
  std::optional<std::pair<int64_t, int64_t>> out;
  int64_t alike = 0;
  for (const auto& [layer, n] : a.calls) {
    const auto other = b.calls.find(layer);
    if (other == b.calls.end()) continue;
    if (!out || n < out->first) out = {n, other->second};
    ++alike;
  }
  if (!out || alike < 2) return {1, 1};
  for (const auto& [layer, n] : a.calls)
    if (const auto other = b.calls.find(layer); other != b.calls.end() && n * out->second != other->second * out->first) return {1, 1};
  return *out;
}

std::string times_text(int64_t n, const std::vector<int64_t>& input) {
  std::vector<std::string> sizes;
  for (const auto size : input) sizes.push_back(std::to_string(size));
  return (n == 1 ? "once" : std::to_string(n) + " times") + (sizes.empty() ? "" : " with an input of [" + join(sizes) + "]");
}

Divergence other_micro_batches(const StepComparison& step, const DumpStep& a, const DumpStep& b) {
  const auto of_a = runs_of(a), of_b = runs_of(b);
  const auto [in_a, in_b] = times_of(of_a, of_b);
  if (in_a == in_b) return {};
  const auto first = std::find_if(step.calls.begin(), step.calls.end(), in_network);
  if (first == step.calls.end()) return {};
  auto d = divergence_at(step, *first);
  d.cause = Divergence::Cause::Input;
  d.sentence = "the runs split step " + std::to_string(step.step) + " into different micro-batches: A runs the network " +
               times_text(in_a, of_a.input) + ", B " + times_text(in_b, of_b.input);
  say(d, "micro_batches");
  say(d, "losses_instead");
  return d;
}

}  // namespace

std::set<std::string> layers_of(const DumpStep& step) {
  std::set<std::string> out;
  for (const auto& call : step.calls)
    if (is_forward_layer(call)) out.insert(call.layer);
  return out;
}

// Whether the other side divides the network differently at this call. Declared layers and separate parameters exist only in our dumps. A
// module without layers inside, such as Python's attention, whose projections are not calls, is shown as one layer.
bool is_cut_otherwise(const DumpCall& call, const std::set<std::string>& layers) {
  if (call.type == "Layer" || call.type == "Parameter" || has_below(layers, call.layer)) return true;
  for (auto above = layer_of(call.layer); !above.empty(); above = layer_of(above))
    if (layers.count(above) != 0) return !has_below(layers, above);
  return false;
}

Divergence other_structure(const StepComparison& step, const DumpStep& a, const DumpStep& b) {
  if (step.failed == 0 || is_part(a) || is_part(b)) return {};
  if (auto batches = other_micro_batches(step, a, b); batches.found) return batches;
  const auto of_a = lone_layers(step, layers_of(b), true), of_b = lone_layers(step, layers_of(a), false);
  if (of_a.count == 0 && of_b.count == 0) return {};
  const auto& first = of_a.first != nullptr ? of_a : of_b;
  auto d = divergence_at(step, *first.first);
  d.cause = Divergence::Cause::Model;
  d.layer = first.module;
  d.layer_b.clear();
  d.sentence = "the networks differ: " + (of_a.count > 0 ? of_a.text("A") : "") + (of_a.count > 0 && of_b.count > 0 ? "; " : "") +
               (of_b.count > 0 ? of_b.text("B") : "");
  say(d, "other_depth");
  say(d, "mapping");
  return d;
}

}  // namespace npu_train::detail
