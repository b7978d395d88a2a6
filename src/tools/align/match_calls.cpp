#include "tools/align/match_calls.hpp"

#include <algorithm>
#include <map>
#include <string_view>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/core/seed.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/align/dumper.hpp"
#include "tools/align/compare_parts.hpp"
#include "tools/align/match_structure.hpp"
#include "tools/align/report_rows.hpp"

namespace npu_train::detail {
namespace {

// Maps classes with the same function to one name.
std::string plain_type(const DumpCall& call) {
  std::string type = call.type;
  if (type.ends_with("Impl")) type.erase(type.size() - 4);
  if (type == "SyncBatchNorm" || type == "FrozenBatchNorm2d") return "BatchNorm2d";
  if (type == "NonDynamicallyQuantizableLinear") return "Linear";
  return type;
}

std::string without_call(const DumpCall& call, const DumpItem& item) {
  return item.name.substr(std::min(call.name.size(), item.name.size()));
}

bool is_optimizer_step(const DumpCall& call) { return call.is_module && call.layer.starts_with("optimizer"); }

// Returns the position of the parameter in the name of an optimizer's item, from which the call's name was removed
// (".output.momentum/head.weight"). Returns the length of the name if it contains no parameter.
size_t parameter_begin(const std::string& name) {
  constexpr std::string_view kParameters = ".parameters.";
  const auto slash = name.find('/');
  return name.starts_with(kParameters) ? kParameters.size() : slash == std::string::npos ? name.size() : slash + 1;
}

// Returns the name that an item of A has in B, without the name of the call: ".output.momentum/classifier.weight" for
// ".output.momentum/head.weight".
std::string name_in_b(const DumpCall& call, const DumpItem& item, const std::map<std::string, std::string>& layers) {
  auto name = without_call(call, item);
  if (layers.empty() || !is_optimizer_step(call)) return name;
  const auto at = parameter_begin(name);
  const auto parameter = name.substr(at);
  for (const auto& layer : {parameter, layer_of(parameter)})  // a parameter outside of layers is treated as a layer
    if (const auto found = layers.find(layer); found != layers.end()) return name.replace(at, layer.size(), found->second);
  return name;
}

// Whether all tensors that exist in both calls have equal shapes on both sides.
bool shapes_fit(const DumpCall& a, const DumpCall& b) {
  std::map<std::string, const DumpItem*> of_b;
  for (const auto& item : b.items) of_b.emplace(without_call(b, item), &item);
  return std::all_of(a.items.begin(), a.items.end(), [&](const DumpItem& item) {
    const auto found = of_b.find(without_call(a, item));
    return found == of_b.end() || !item.is_tensor() || !found->second->is_tensor() || item.shape == found->second->shape;
  });
}

// Returns a text with the sides and shapes of a call's tensors. It is the same in every run of a network.
std::string shapes_of(const DumpCall& call) {
  std::string out;
  for (const auto& item : call.items)
    if (item.is_tensor()) {
      out += item.side + ":";
      for (const auto n : item.shape) out += std::to_string(n) + ",";
    }
  return out;
}

using Groups = std::map<std::string, std::pair<std::vector<size_t>, std::vector<size_t>>>;

class Matcher {
 public:
  Matcher(const DumpStep& a, const DumpStep& b) : a_(a), b_(b), of_a_(a.calls.size(), -1), of_b_(b.calls.size(), -1) {}

  // Pairs calls with the same key; if several calls have the key, pairs them in order.
  template <class KeyA, class KeyB>
  void by(KeyA key_a, KeyB key_b) {
    for (const auto& [key, sides] : groups(key_a, key_b))
      for (size_t i = 0; i < std::min(sides.first.size(), sides.second.size()); ++i) pair(sides.first[i], sides.second[i]);
  }

  // Like by(), but pairs two calls only if they also have the same class, or values of the same shapes.
  template <class Key>
  void by_fitting(Key key) {
    for (const auto& [name, sides] : groups(key, key))
      for (size_t i = 0; i < std::min(sides.first.size(), sides.second.size()); ++i) {
        const auto &a = a_.calls[sides.first[i]], &b = b_.calls[sides.second[i]];
        if (plain_type(a) == plain_type(b) || shapes_fit(a, b)) pair(sides.first[i], sides.second[i]);
      }
  }

  // Pairs layers with different names on the two sides. Returns the pairs.
  IndexPairs by_structure() {
    const auto open = [](const std::vector<int64_t>& of, const std::set<size_t>& alone) {
      std::vector<char> out;
      for (size_t i = 0; i < of.size(); ++i) out.push_back(of[i] < 0 && alone.count(i) == 0 ? 1 : 0);
      return out;
    };
    auto out = match_structure(a_, b_, open(of_a_, alone_a_), open(of_b_, alone_b_));
    for (const auto& [i, j] : out) pair(i, j);
    return out;
  }

  // Handles operators that the two sides call different numbers of times, so that the numbers in the names of the calls do not correspond.
  // Pairs these calls in order, by the shapes of their values.
  void shifted_operators() {
    const auto key = [](const DumpCall& call) { return call.is_module ? std::string() : plain_type(call) + "|" + call.direction; };
    for (const auto& [name, sides] : groups(key, key)) {
      const auto &a = sides.first, &b = sides.second;
      if (a.size() == b.size() || a.size() * b.size() > kMostAligned) continue;
      std::vector<std::string> shapes_a, shapes_b;
      for (const auto i : a) shapes_a.push_back(shapes_of(a_.calls[i]));
      for (const auto j : b) shapes_b.push_back(shapes_of(b_.calls[j]));
      for (const auto& [i, j] : longest_common(shapes_a, shapes_b)) pair(a[i], b[j]);
      for (const auto& [side, taken] : {std::pair(&a, &alone_a_), std::pair(&b, &alone_b_)}) taken->insert(side->begin(), side->end());
    }
  }

  // Pairs the remaining calls in order, whatever their names, if both sides have equally many of them with the same key and the shapes
  // match. Returns the pairs.
  template <class Key>
  std::vector<std::pair<size_t, size_t>> by_order(Key key) {
    std::vector<std::pair<size_t, size_t>> out;
    for (const auto& [name, sides] : groups(key, key)) {
      if (sides.first.size() != sides.second.size()) continue;
      for (size_t i = 0; i < sides.first.size(); ++i)
        if (shapes_fit(a_.calls[sides.first[i]], b_.calls[sides.second[i]])) out.emplace_back(sides.first[i], sides.second[i]);
    }
    std::sort(out.begin(), out.end());
    for (const auto& [i, j] : out) pair(i, j);
    return out;
  }

  CallPairs pairs() const {
    CallPairs out;
    std::map<int64_t, std::vector<int64_t>> behind;  // calls that only B has, grouped by the last paired call of B before them
    int64_t last = -1;
    for (size_t j = 0; j < of_b_.size(); ++j) {
      if (of_b_[j] >= 0)
        last = static_cast<int64_t>(j);
      else
        behind[last].push_back(static_cast<int64_t>(j));
    }
    const auto flush = [&](int64_t place) {
      for (const auto j : behind[place]) out.emplace_back(-1, j);
    };
    flush(-1);
    for (size_t i = 0; i < of_a_.size(); ++i) {
      out.emplace_back(static_cast<int64_t>(i), of_a_[i]);
      if (of_a_[i] >= 0) flush(of_a_[i]);
    }
    return out;
  }

 private:
  // Returns the calls that are not yet paired, in order, grouped by their keys.
  template <class KeyA, class KeyB>
  Groups groups(KeyA key_a, KeyB key_b) const {
    Groups groups;
    for (size_t i = 0; i < of_a_.size(); ++i)
      if (of_a_[i] < 0 && alone_a_.count(i) == 0)
        if (auto key = key_a(a_.calls[i]); !key.empty()) groups[key].first.push_back(i);
    for (size_t i = 0; i < of_b_.size(); ++i)
      if (of_b_[i] < 0 && alone_b_.count(i) == 0)
        if (auto key = key_b(b_.calls[i]); !key.empty()) groups[key].second.push_back(i);
    return groups;
  }

  void pair(size_t i, size_t j) {
    of_a_[i] = static_cast<int64_t>(j);
    of_b_[j] = static_cast<int64_t>(i);
  }

  const DumpStep& a_;
  const DumpStep& b_;
  std::vector<int64_t> of_a_, of_b_;
  std::set<size_t> alone_a_, alone_b_;  // calls that are excluded from further pairing
};

std::string with_number(const DumpCall& call, const std::string& layer) {
  return layer + "|" + call.direction + "|" + std::to_string(call.number);
}

// Pairs parameters with different names, such as "in_proj_weight" and "weight", in order, if they have equal numbers of elements.
void pair_parameters(const DumpCall& a, const DumpCall& b, CallPairs& pairs, std::vector<bool>& taken) {
  const auto elements = [](const DumpItem& item) {
    int64_t n = item.side == "parameters" || item.side == "parameters_grad" ? 1 : -1;
    for (const auto size : item.shape)
      if (__builtin_mul_overflow(n, size, &n)) return int64_t{-1};
    return n;
  };
  for (auto& [i, j] : pairs) {
    if (j >= 0) continue;
    const auto& item = a.items[static_cast<size_t>(i)];
    for (size_t k = 0; j < 0 && k < b.items.size(); ++k) {
      if (taken[k] || b.items[k].side != item.side || elements(item) < 0 || elements(b.items[k]) != elements(item)) continue;
      taken[k] = true;
      j = static_cast<int64_t>(k);
    }
  }
}

std::set<std::string> names_in(const DumpStep& step) {
  std::set<std::string> names;
  for (const auto& call : step.calls) names.insert({call.name, call.layer});
  return names;
}

}  // namespace

std::set<std::string> unknown_names(const std::set<std::string>& in_a, const std::set<std::string>& in_b, const CompareOptions& options) {
  std::set<std::string> out;
  for (const auto& [from, to] : options.mapping) {
    if (in_a.count(from) == 0) out.insert(from + ", which does not exist in A");
    if (in_b.count(to) == 0) out.insert(to + ", which does not exist in B");
  }
  return out;
}

CallMatch match_calls(const DumpStep& a, const DumpStep& b, const CompareOptions& options) {
  Matcher matcher(a, b);
  const auto& map = options.mapping;
  CallMatch out;
  if (!map.empty()) {
    out.unknown = unknown_names(names_in(a), names_in(b), options);
    const auto mapped = [&](const DumpCall& call) {
      if (const auto whole = map.find(call.name); whole != map.end()) return whole->second;
      const auto layer = map.find(call.layer);
      return layer == map.end() ? std::string() : with_number(call, layer->second);
    };
    std::set<std::string> targets;
    for (const auto& [from, to] : map) targets.insert(to);
    matcher.by(mapped, [&](const DumpCall& call) {
      if (targets.count(call.name) != 0) return call.name;
      return targets.count(call.layer) != 0 ? with_number(call, call.layer) : std::string();
    });
  }
  if (options.fuzzy) matcher.shifted_operators();
  const auto same = [&](auto key) { matcher.by(key, key); };
  same([](const DumpCall& call) { return call.name; });
  if (options.fuzzy) {
    matcher.by_fitting([](const DumpCall& call) { return call.is_module ? with_number(call, call.layer) : std::string(); });
    same([](const DumpCall& call) { return to_lower(call.layer) + "|" + call.direction + "|" + to_lower(plain_type(call)); });
    if (const auto sized = matcher.by_structure(); !sized.empty()) {
      const auto n = static_cast<int64_t>(sized.size());
      out.notes.push_back(counted(n, "call") + " of layers with different names" + (n == 1 ? " was" : " were") +
                          " paired by the sizes of their parameters and outputs, in order, as in " + a.calls[sized[0].first].name +
                          " with " + b.calls[sized[0].second].name + "; --mapping FILE pairs by name, --strict-names excludes them");
      for (const auto& [i, j] : sized) out.by_size.insert(static_cast<int64_t>(i));
    }
    const auto in_order = [](const DumpCall& call) { return plain_type(call) + "|" + call.direction + (call.is_module ? "|m" : "|o"); };
    if (const auto guessed = matcher.by_order(in_order); !guessed.empty()) {
      const auto n = static_cast<int64_t>(guessed.size());
      out.notes.push_back(counted(n, "call") + (n == 1 ? " was" : " were") + " paired only by class and order, as in " +
                          a.calls[guessed[0].first].name + " with " + b.calls[guessed[0].second].name +
                          "; --mapping FILE pairs by name, --strict-names excludes them");
    }
  }
  out.pairs = matcher.pairs();
  for (const auto& [i, j] : out.pairs) {
    if (i < 0 || j < 0) continue;
    const auto &layer_a = a.calls[static_cast<size_t>(i)].layer, &layer_b = b.calls[static_cast<size_t>(j)].layer;
    if (layer_a != layer_b) out.layers.emplace(layer_a, layer_b);
  }
  return out;
}

CallPairs match_items(const DumpCall& a, const DumpCall& b, const std::map<std::string, std::string>& layers) {
  CallPairs out;
  std::vector<bool> taken(b.items.size(), false);
  std::map<std::string, size_t> by_name;
  for (size_t j = 0; j < b.items.size(); ++j) by_name.emplace(without_call(b, b.items[j]), j);
  std::vector<size_t> open;
  for (size_t i = 0; i < a.items.size(); ++i) {
    auto found = by_name.find(name_in_b(a, a.items[i], layers));
    if (found == by_name.end()) found = by_name.find(without_call(a, a.items[i]));  // falls back to the name in A
    if (found != by_name.end() && !taken[found->second]) {
      taken[found->second] = true;
      out.emplace_back(static_cast<int64_t>(i), static_cast<int64_t>(found->second));
    } else {
      out.emplace_back(static_cast<int64_t>(i), -1);
    }
  }
  if (a.layer != b.layer) pair_parameters(a, b, out, taken);
  for (size_t j = 0; j < b.items.size(); ++j)
    if (!taken[j]) out.emplace_back(-1, static_cast<int64_t>(j));
  return out;
}

ChosenCalls::ChosenCalls(const DumpStep& step, const CompareOptions& options, bool fused_on_one_side) : step_(step), options_(options) {
  const auto last = std::find_if(step.calls.rbegin(), step.calls.rend(), [](const DumpCall& call) {
    return call.is_module && call.direction == "forward" && call.layer != "loss" && !call.layer.starts_with("optimizer");
  });
  if (last != step.calls.rend()) last_layer_ = last->layer;
  if (options.sample >= 1) return;
  double smallest = 1;
  for (const auto& call : step.calls) {
    layers_.insert(call.layer);
    if (!call.is_module || call.direction != "forward" || is_optimizer_step(call) || draw(call.layer) >= smallest) continue;
    smallest = draw(call.layer);
    always_drawn_ = call.layer;
  }
  draws_last_ = fused_on_one_side && std::any_of(step.calls.begin(), step.calls.end(), [&](const DumpCall& call) {
                  return call.is_module && is_batch_norm(call.type) && is_drawn(call.layer);
                });
}

// Returns a random number from 0 to 1, which depends only on the layer's name and the seed. A sample contains the layers whose number is
// below `sample`.
double ChosenCalls::draw(const std::string& layer) const {
  return static_cast<double>(derive_seed(static_cast<uint64_t>(options_.seed), "compare " + layer) >> 11) * 0x1.0p-53;
}

bool ChosenCalls::is_drawn(const std::string& layer) const {
  return draw(layer) < options_.sample || layer == always_drawn_ || (draws_last_ && layer == last_layer_);
}

bool ChosenCalls::has_item(const DumpCall& call, const DumpItem& item) const {
  if (options_.sample >= 1 || !is_optimizer_step(call)) return true;
  const auto name = without_call(call, item);
  const auto parameter = name.substr(parameter_begin(name));
  return parameter.empty() || is_drawn(layers_.count(parameter) != 0 ? parameter : layer_of(parameter));
}

bool ChosenCalls::has(size_t index) const {
  const auto& call = step_.calls[index];
  if (options_.sample < 1 && !is_optimizer_step(call) && !is_drawn(call.layer)) return false;
  const auto& layers = options_.layers;
  if (layers.empty()) return true;
  const bool at_the_end = call.layer == last_layer_ || call.layer == "loss";
  if (layers == "last") return at_the_end;
  if (layers != "sensitive") return call_matches(call.name, layers);
  const auto type = to_lower(call.type);
  const auto is = [&](const char* word) { return type.find(word) != std::string::npos; };
  return index == 0 || at_the_end || is("norm") || is("softmax") || is("attention") || is("loss") || is("cross_entropy");
}

}  // namespace npu_train::detail
