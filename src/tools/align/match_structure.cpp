#include "tools/align/match_structure.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {
namespace {

// Returns the number of elements of a parameter or its gradient; "" for a shape that no tensor can have.
std::string elements_of(const DumpItem& item) {
  int64_t n = 1;
  for (const auto size : item.shape)
    if (size < 0 || __builtin_mul_overflow(n, size, &n)) return "";
  return std::to_string(n);
}

// Returns the sorted numbers of elements of the parameters; "" for a call without parameters.
std::string sizes_of_parameters(const DumpCall& call) {
  std::vector<std::string> sizes;
  for (const auto& item : call.items)
    if (item.side == "parameters" && item.is_tensor() && !is_running_statistic(item.name)) sizes.push_back(elements_of(item));
  std::sort(sizes.begin(), sizes.end());
  return join(sizes);
}

std::string size_of_output(const DumpCall& call) {
  const auto found =
      std::find_if(call.items.begin(), call.items.end(), [](const DumpItem& i) { return i.side == "output" && i.is_tensor(); });
  return found == call.items.end() ? "" : elements_of(*found);
}

// Returns a key that layers of the same structure share. A separate parameter has a different key than a module, since its output is the
// parameter and not the output of a module.
std::string structure_of(const DumpCall& call) { return (call.type == "Parameter" ? "alone " : "") + sizes_of_parameters(call); }

bool is_forward_of_layer(const DumpCall& call) {
  return call.is_module && call.direction == "forward" && call.layer != "loss" && !call.layer.starts_with("optimizer");
}

class StructureMatcher {
 public:
  StructureMatcher(const DumpStep& a, const DumpStep& b, std::vector<char> open_a, std::vector<char> open_b)
      : a_(a), b_(b), open_a_(std::move(open_a)), open_b_(std::move(open_b)) {}

  IndexPairs run() {
    align([](const DumpCall& call) { return structure_of(call) + " to " + size_of_output(call); });
    align(structure_of);
    pair_backwards();
    pair_gradients();
    return std::move(pairs_);
  }

 private:
  template <class Key>
  void align(Key key) {
    std::vector<size_t> from_a, from_b;
    std::vector<std::string> keys_a, keys_b;
    const auto collect = [&](const DumpStep& step, const std::vector<char>& open, std::vector<size_t>& from,
                             std::vector<std::string>& keys) {
      for (size_t i = 0; i < step.calls.size(); ++i)
        if (open[i] != 0 && is_forward_of_layer(step.calls[i]) && !sizes_of_parameters(step.calls[i]).empty()) {
          from.push_back(i);
          keys.push_back(key(step.calls[i]));
        }
    };
    collect(a_, open_a_, from_a, keys_a);
    collect(b_, open_b_, from_b, keys_b);
    for (const auto& [i, j] : longest_common(keys_a, keys_b)) pair(from_a[i], from_b[j]);
  }

  void pair(size_t i, size_t j) {
    pairs_.emplace_back(i, j);
    open_a_[i] = open_b_[j] = 0;
  }

  void pair_backwards() {
    using Key = std::tuple<std::string, int64_t>;
    std::map<Key, size_t> in_b;
    for (size_t j = 0; j < b_.calls.size(); ++j)
      if (const auto& call = b_.calls[j]; open_b_[j] != 0 && call.is_module && call.direction == "backward")
        in_b.emplace(Key(call.layer, call.number), j);
    std::map<Key, Key> partners;
    for (const auto& [i, j] : pairs_)
      partners.emplace(Key(a_.calls[i].layer, a_.calls[i].number), Key(b_.calls[j].layer, b_.calls[j].number));
    for (size_t i = 0; i < a_.calls.size(); ++i) {
      const auto& call = a_.calls[i];
      if (open_a_[i] == 0 || !call.is_module || call.direction != "backward") continue;
      const auto partner = partners.find(Key(call.layer, call.number));
      const auto found = partner == partners.end() ? in_b.end() : in_b.find(partner->second);
      if (found != in_b.end() && open_b_[found->second] != 0) pair(i, found->second);
    }
  }

  // Pairs gradients by their parameters, because the gradient of a separate parameter belongs to the module around it.
  void pair_gradients() {
    std::map<std::string, std::string> partners;  // parameter of A -> parameter of B
    for (const auto& [i, j] : pairs_) {
      const auto of_a = parameters(a_.calls[i]), of_b = parameters(b_.calls[j]);
      for (const auto& [size, name] : of_a)
        for (const auto& [other, partner] : of_b)
          if (size == other) partners.emplace(name, partner);
    }
    std::map<std::string, size_t> in_b;
    for (size_t j = 0; j < b_.calls.size(); ++j)
      if (open_b_[j] != 0 && b_.calls[j].direction == "parameters_grad")
        for (const auto& item : b_.calls[j].items) in_b.emplace(parameter_name(b_.calls[j], item), j);
    for (size_t i = 0; i < a_.calls.size(); ++i) {
      if (open_a_[i] == 0 || a_.calls[i].direction != "parameters_grad") continue;
      for (const auto& item : a_.calls[i].items) {
        const auto partner = partners.find(parameter_name(a_.calls[i], item));
        const auto found = partner == partners.end() ? in_b.end() : in_b.find(partner->second);
        if (found == in_b.end() || open_b_[found->second] == 0) continue;
        pair(i, found->second);
        break;
      }
    }
  }

  // Returns pairs of the number of elements and the name of each parameter.
  static std::vector<std::pair<std::string, std::string>> parameters(const DumpCall& call) {
    std::vector<std::pair<std::string, std::string>> out;
    for (const auto& item : call.items)
      if (item.side == "parameters" && item.is_tensor() && !is_running_statistic(item.name))
        out.emplace_back(elements_of(item), parameter_name(call, item));
    return out;
  }

  const DumpStep &a_, &b_;
  std::vector<char> open_a_, open_b_;
  IndexPairs pairs_;
};

}  // namespace

IndexPairs longest_common(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  IndexPairs out;
  if (a.size() * b.size() > kMostAligned) return out;
  const size_t columns = b.size() + 1;
  std::vector<uint32_t> length((a.size() + 1) * columns, 0);  // length of the longest common subsequence of the parts after (i, j)
  for (size_t i = a.size(); i-- > 0;)
    for (size_t j = b.size(); j-- > 0;)
      length[i * columns + j] =
          a[i] == b[j] ? length[(i + 1) * columns + j + 1] + 1 : std::max(length[(i + 1) * columns + j], length[i * columns + j + 1]);
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i] == b[j])
      out.emplace_back(i++, j++);
    else if (length[(i + 1) * columns + j] >= length[i * columns + j + 1])
      ++i;
    else
      ++j;
  }
  return out;
}

std::string parameter_name(const DumpCall& call, const DumpItem& item) {
  const auto module = call.type == "Parameter" ? layer_of(call.layer) : call.layer;
  return (module.empty() ? "" : module + ".") + item.name.substr(item.name.rfind('.') + 1);
}

bool is_running_statistic(const std::string& name) { return name.ends_with(".running_mean") || name.ends_with(".running_var"); }

bool keeps_transposed(const DumpCall& a, const DumpCall& b) { return (a.type == "Conv1D") != (b.type == "Conv1D"); }

IndexPairs match_structure(const DumpStep& a, const DumpStep& b, const std::vector<char>& open_a, const std::vector<char>& open_b) {
  return StructureMatcher(a, b, open_a, open_b).run();
}

}  // namespace npu_train::detail
