#include "npu_train/nn/weights.hpp"

#include <ATen/core/Formatting.h>
#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "npu_train/core/first_few.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

constexpr std::array<const char*, 6> kPrefixes = {"module.", "model.", "_orig_mod.", "state_dict.", "model_state_dict.", "net."};
constexpr std::array<const char*, 3> kSplit = {"q_proj.", "k_proj.", "v_proj."};

bool replace_once(std::string& text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  if (at == std::string::npos) return false;
  text.replace(at, from.size(), to);
  return true;
}

bool optional_name(const std::string& name) { return name.ends_with("num_batches_tracked"); }

bool under(const std::string& name, const std::string& path) { return !path.empty() && name.starts_with(path + "."); }

// "layer#.#.conv#.weight": equal for the layers of one series.
std::string series_of(const std::string& name) {
  std::string out;
  for (const char c : name) {
    if (c < '0' || c > '9')
      out += c;
    else if (out.empty() || out.back() != '#')
      out += '#';
  }
  return out;
}

// The tensors of the file under the names that the model would use.
class Source {
 public:
  Source(const NamedTensors& tensors, const std::unordered_set<std::string>& wanted, WeightsReport& report)
      : wanted_(wanted), report_(report) {
    for (const auto& [name, value] : tensors)
      if (wanted.count(name) != 0) by_name_[name] = {name, value};
    for (const auto& [name, value] : tensors) {
      if (wanted.count(name) != 0) continue;
      const std::string plain = without_prefixes(name);
      if (!by_name_.emplace(plain, Entry{name, value}).second) report.unexpected.push_back(name);
    }
  }

  // The tensor for `name`, found under it or put together; undefined when there is none.
  at::Tensor take(const std::string& name) {
    at::Tensor found = use(name);
    if (found.defined()) return found;
    if ((found = fused(name)).defined() || (found = split(name)).defined() || (found = renamed(name)).defined()) return found;
    return {};
  }

  // Names of the file that match nothing in the model.
  void list_unused(const NamedTensors& tensors, const std::string& head) {
    std::unordered_set<std::string> series;
    for (const auto& name : wanted_)
      if (!under(name, head)) series.insert(series_of(name));
    std::unordered_map<std::string, bool> unused;  // and whether it continues a series
    for (const auto& [name, entry] : by_name_)
      if (used_.count(name) == 0 && !optional_name(name)) unused.emplace(entry.name, series.count(series_of(name)) != 0);
    for (const auto& [name, value] : tensors) {
      const auto found = unused.find(name);
      if (found == unused.end()) continue;
      report_.unexpected.push_back(name);
      if (found->second) report_.deeper.push_back(name);
    }
  }

 private:
  struct Entry {
    std::string name;
    at::Tensor value;
  };

  std::string without_prefixes(std::string name) {
    for (bool again = true; again && wanted_.count(name) == 0;) {
      again = false;
      for (const std::string prefix : kPrefixes) {
        if (!name.starts_with(prefix)) continue;
        name.erase(0, prefix.size());
        auto& removed = report_.removed_prefixes;
        if (std::find(removed.begin(), removed.end(), prefix) == removed.end()) removed.push_back(prefix);
        again = true;
        break;
      }
    }
    return name;
  }

  at::Tensor use(const std::string& name) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return {};
    used_.insert(name);
    return found->second.value;
  }
  bool has(const std::string& name) const { return by_name_.count(name) != 0; }

  at::Tensor fused(const std::string& name) {
    for (const std::string kind : {"weight", "bias"}) {
      if (!name.ends_with("in_proj_" + kind)) continue;
      const std::string stem = name.substr(0, name.size() - 8 - kind.size());
      std::vector<at::Tensor> parts;
      for (const auto* part : kSplit)
        if (has(stem + part + kind)) parts.push_back(use(stem + part + kind));
      if (parts.size() != 3 || parts[0].dim() == 0 || parts[1].sizes() != parts[0].sizes() || parts[2].sizes() != parts[0].sizes())
        return {};
      report_.converted.push_back(name + " from q_proj, k_proj, v_proj");
      return at::cat(parts, 0);
    }
    return {};
  }

  at::Tensor split(const std::string& name) {
    for (const std::string kind : {"weight", "bias"})
      for (int64_t i = 0; i < 3; ++i) {
        if (!name.ends_with(kSplit[i] + kind)) continue;
        const std::string stem = name.substr(0, name.size() - 7 - kind.size());
        const at::Tensor whole = use(stem + "in_proj_" + kind);
        if (!whole.defined() || whole.dim() == 0 || whole.size(0) % 3 != 0) return {};
        report_.converted.push_back(name + " from in_proj_" + kind);
        return whole.narrow(0, i * whole.size(0) / 3, whole.size(0) / 3);
      }
    return {};
  }

  at::Tensor renamed(const std::string& name) {
    std::string other = name;
    if (!replace_once(other, ".mlp.0.", ".mlp.linear_1.") && !replace_once(other, ".mlp.3.", ".mlp.linear_2.")) return {};
    const at::Tensor found = use(other);
    if (found.defined()) report_.converted.push_back(name + " from " + other);
    return found;
  }

  const std::unordered_set<std::string>& wanted_;
  WeightsReport& report_;
  std::unordered_map<std::string, Entry> by_name_;
  std::unordered_set<std::string> used_;
};

std::string first_few(const std::vector<std::string>& names) { return detail::first_few(names, 8); }

}  // namespace

WeightsReport load_weights(torch::nn::Module& module, const NamedTensors& tensors, const LoadWeightsOptions& options) {
  const NamedTensors targets = named_state(module);
  std::unordered_set<std::string> wanted;
  for (const auto& [name, value] : targets) wanted.insert(name);

  WeightsReport report;
  Source source(tensors, wanted, report);
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const auto& [name, target] : targets) {
    const at::Tensor value = source.take(name);
    if (!value.defined()) {
      if (!optional_name(name)) report.missing.push_back(name);
    } else if (value.sizes() != target.sizes()) {
      report.misshapen.push_back({name, c10::str(target.sizes()), c10::str(value.sizes())});
    } else if (!optional_name(name) && !c10::canCast(value.scalar_type(), target.scalar_type())) {
      report.misshapen.push_back({name, c10::str(target.scalar_type()), c10::str(value.scalar_type())});
    } else {
      report.loaded.push_back(name);
      copies.emplace_back(target, value);
    }
  }
  source.list_unused(tensors, options.head);
  // A file may hold a tied tensor under one of its names.
  std::unordered_set<const at::TensorImpl*> filled;
  for (const auto& copy : copies) filled.insert(copy.first.unsafeGetTensorImpl());
  std::erase_if(report.missing, [&](const std::string& name) {
    const auto target = std::find_if(targets.begin(), targets.end(), [&](const auto& t) { return t.first == name; });
    return filled.count(target->second.unsafeGetTensorImpl()) != 0;
  });
  const auto in_head = [&](const std::string& name) { return under(name, options.head); };
  if (std::any_of(report.missing.begin(), report.missing.end(), in_head) ||
      std::any_of(report.misshapen.begin(), report.misshapen.end(), [&](const auto& m) { return in_head(m.name); }))
    report.fresh_head = options.head;
  // Half a head of the file under fresh other half makes no sense.
  if (!report.fresh_head.empty()) {
    std::erase_if(copies, [&](const auto& copy) {
      return std::any_of(targets.begin(), targets.end(), [&](const auto& t) { return in_head(t.first) && t.second.is_same(copy.first); });
    });
    std::erase_if(report.loaded, in_head);
  }
  check(!options.strict || report.fits(), ErrorKind::Checkpoint, "load_weights", "these are the weights of another network; ", report.str(),
        "; hint: give the weights of this one, or model.weights_strict=false (in C++: strict = false) to load the tensors that fit");
  check(!report.loaded.empty(), ErrorKind::Checkpoint, "load_weights", "none of the ", tensors.size(), " tensors fits the model; ",
        report.str());

  c10::AutoGradMode no_grad(false);
  for (auto& [target, value] : copies) target.copy_(value);
  return report;
}

WeightsReport load_weights(Model& model, const NamedTensors& tensors, LoadWeightsOptions options) {
  if (options.head.empty()) options.head = model.head;
  return load_weights(*model.module, tensors, options);
}

bool WeightsReport::fits() const {
  return deeper.empty() && std::all_of(missing.begin(), missing.end(), [&](const auto& name) { return under(name, fresh_head); }) &&
         std::all_of(misshapen.begin(), misshapen.end(), [&](const auto& m) { return under(m.name, fresh_head); });
}

std::string WeightsReport::str() const {
  std::string out = c10::str("weights: ", loaded.size(), " loaded, ", missing.size(), " missing, ", unexpected.size(), " unexpected, ",
                             misshapen.size(), " misshapen");
  if (!removed_prefixes.empty()) out += "\n  prefixes removed: " + join(removed_prefixes);
  if (!converted.empty()) out += "\n  converted: " + first_few(converted);
  if (!fresh_head.empty())
    out += "\n  head '" + fresh_head + "' has a different size in the file, or is missing there: it keeps its initial values";
  if (!missing.empty()) out += "\n  missing: " + first_few(missing);
  if (!unexpected.empty()) out += "\n  unexpected: " + first_few(unexpected);
  if (!deeper.empty()) out += "\n  further layers, which the model does not have: " + first_few(deeper);
  if (!misshapen.empty()) {
    std::vector<std::string> names;
    for (const auto& m : misshapen) names.push_back(m.name + " " + m.here + " here, " + m.given + " in the file");
    out += "\n  misshapen: " + first_few(names);
  }
  return out;
}

}  // namespace npu_train
