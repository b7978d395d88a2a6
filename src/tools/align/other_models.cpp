// Detects dumps of different networks.
#include <algorithm>
#include <map>
#include <set>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/core/text.hpp"
#include "tools/align/causes.hpp"
#include "tools/align/divergence_walk.hpp"
#include "tools/align/match_structure.hpp"

namespace npu_train::detail {
namespace {

using Kind = ItemComparison::Kind;

bool is_of_layer(const DumpCall& call) {
  return call.is_module && call.direction == "forward" && !call.layer.starts_with("optimizer") && parameter_elements(call) > 0;
}

// Adds the number of elements of each parameter of a call to `out`, by name. A separate parameter belongs to the module around it.
void add_parameters(const DumpCall& call, std::map<std::string, int64_t>& out) {
  const auto module = call.type == "Parameter" ? layer_of(call.layer) : call.layer;
  for (const auto& item : call.items) {
    if (item.side != "parameters" || !item.is_tensor() || is_running_statistic(item.name)) continue;
    int64_t n = 1;
    for (const auto size : item.shape)
      if (__builtin_mul_overflow(n, size, &n)) n = 0;  // not a valid shape
    out.emplace(module + item.name.substr(item.name.rfind('.')), std::max<int64_t>(n, 0));
  }
}

// The layers with parameters of one side.
struct Outline {
  std::set<std::string> layers;
  std::map<std::string, int64_t> parameters;  // number of elements by name
  std::set<std::string> alike;                // layers that exist on the other side with the same shapes
  std::string first;                          // name of the first call whose layer is not in `alike`
  int64_t unlike() const { return static_cast<int64_t>(layers.size() - alike.size()); }
  std::string text(const DumpStep& step) const {
    int64_t elements = 0;
    for (const auto& [name, n] : parameters)
      if (__builtin_add_overflow(elements, n, &elements)) elements = 0;
    const auto model = fact_of(step, "model");
    return (model.empty() ? "" : "(" + model + ") ") + "has " + with_commas(static_cast<int64_t>(layers.size())) + " layers with " +
           with_commas(elements) + " parameters, " + with_commas(unlike()) + " of them not in the other";
  }
};

Outline outline_of(const StepComparison& step, const DumpStep& dump, const DumpStep& other, bool in_a) {
  const auto others = layers_of(other);
  std::map<std::string, const CallComparison*> compared;
  for (const auto& call : step.calls) compared.emplace(in_a ? call.a : call.b, &call);
  Outline out;
  for (const auto& call : dump.calls) {
    const auto found = compared.find(call.name);
    if (found == compared.end() || !is_of_layer(call)) continue;
    add_parameters(call, out.parameters);
    const bool lone = !two_sided(*found->second), harmless = !found->second->failed && !is_regrouped(step, call.layer);
    if (call.type == "Parameter" || (lone && (harmless || is_cut_otherwise(call, others)))) continue;
    out.layers.insert(call.layer);
    const auto& items = found->second->items;
    const bool same = two_sided(*found->second) && std::none_of(items.begin(), items.end(), [](const ItemComparison& i) {
                        const bool unlike = i.kind == Kind::Unmatched || i.kind == Kind::OneSided;
                        return i.side == "parameters" && unlike && !is_running_statistic(i.a.empty() ? i.b : i.a);
                      });
    if (same || is_regrouped(step, call.layer))
      out.alike.insert(call.layer);
    else if (out.first.empty())
      out.first = call.name;
  }
  return out;
}

}  // namespace

int64_t parameter_elements(const DumpCall& call) {
  std::map<std::string, int64_t> parameters;
  add_parameters(call, parameters);
  int64_t out = 0;
  for (const auto& [name, n] : parameters)
    if (__builtin_add_overflow(out, n, &out)) return 0;
  return out;
}

std::vector<std::string> regrouped_modules(const DumpStep& a, const DumpStep& b, const std::vector<std::pair<int64_t, int64_t>>& pairs) {
  std::map<std::string, std::pair<int64_t, int64_t>> lone;
  for (const auto& [i, j] : pairs) {
    if ((i >= 0) == (j >= 0)) continue;
    const auto& call = i >= 0 ? a.calls[static_cast<size_t>(i)] : b.calls[static_cast<size_t>(j)];
    const auto module = layer_of(call.layer);
    if (module.empty() || !is_of_layer(call)) continue;
    auto& counts = lone[module];
    (i >= 0 ? counts.first : counts.second) += parameter_elements(call);
  }
  std::vector<std::string> out;
  for (const auto& [module, counts] : lone)
    if (counts.first == counts.second) out.push_back(module);
  return out;
}

bool is_regrouped(const StepComparison& step, const std::string& layer) {
  return std::any_of(step.regrouped.begin(), step.regrouped.end(), [&](const auto& m) { return m == layer || m == layer_of(layer); });
}

Divergence other_models(const StepComparison& step, const DumpStep& a, const DumpStep& b) {
  constexpr int64_t kShare = 4;  // more than one in this many layers must differ, since a single exchanged layer is not another network
  if (step.failed == 0 || is_part(a) || is_part(b)) return {};
  const auto of_a = outline_of(step, a, b, true), of_b = outline_of(step, b, a, false);
  const auto all = static_cast<int64_t>(of_a.layers.size() + of_b.layers.size());
  if ((of_a.unlike() + of_b.unlike()) * kShare <= all || of_a.layers.empty() || of_b.layers.empty()) return {};
  Divergence d;
  const auto& first = of_a.first.empty() ? of_b.first : of_a.first;
  for (const auto& call : step.calls)
    if ((of_a.first.empty() ? call.b : call.a) == first) d = divergence_at(step, call);
  d.cause = Divergence::Cause::Model;
  d.sentence = "the runs have different models: A " + of_a.text(a) + "; B " + of_b.text(b);
  say(d, "other_model");
  say(d, "mapping");
  return d;
}

}  // namespace npu_train::detail
