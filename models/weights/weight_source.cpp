#include "models/weights/weight_source.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>

#include <algorithm>

#include "models/families.hpp"

namespace npu_train::detail {
namespace {

bool is_counter(const std::string& name) { return name.ends_with("num_batches_tracked"); }

// Returns a text that is the same for all layers of a series: "layer#.#.conv#.weight".
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

// Detects nanoGPT by the shape of the projection of query, key and value, which is not square. Its files have the names of Hugging Face's
// GPT-2, whose matrices are [in, out], but store them as [out, in].
bool has_usual_matrices(const Naming& naming, const NamedTensors& tensors, const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    const auto& value = tensors[i].second;
    if (value.dim() == 2 && naming.transposes(names[i]) && naming.ours(names[i]).ends_with("qkv.weight"))
      return value.size(0) == 3 * value.size(1);
  }
  return false;
}

}  // namespace

WeightSource::WeightSource(const NamedTensors& tensors, const std::unordered_set<std::string>& wanted, WeightsReport& report)
    : tensors_(tensors), wanted_(wanted), report_(report) {
  std::vector<std::string> names;
  for (const auto& [name, value] : tensors) names.push_back(plain_name(name));
  naming_ = known_naming(names);
  if (naming_.naming != nullptr) report.naming = {naming_.family->name, naming_.naming->libraries.front()};
  for (const auto& [name, value] : tensors)  // first, so that an exact name wins over a translated one
    if (wanted.count(name) != 0) by_name_[name] = {name, value};
  const bool usual = naming_.naming != nullptr && has_usual_matrices(*naming_.naming, tensors, names);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& name = tensors[i].first;
    at::Tensor value = tensors[i].second;
    bool renamed = false;
    if (wanted.count(names[i]) == 0 && naming_.naming != nullptr)
      if (auto ours = naming_.naming->ours(names[i]); !ours.empty()) {
        const auto& tied = naming_.naming->tied;
        if (ours == naming_.naming->head.ours && wanted.count(ours) == 0 && wanted.count(tied) != 0) ours = tied;
        if (value.dim() == 2 && !usual && naming_.naming->transposes(names[i])) {
          value = value.t();
          report.converted.push_back(ours + " transposed");
        }
        names[i] = ours;
        renamed = true;
      }
    if (wanted.count(name) != 0 || by_name_.emplace(names[i], Entry{name, value}).second)
      translated_.emplace_back(names[i], value);
    else if (!renamed)
      report.unexpected.push_back(name);
    else
      check_tied(by_name_.at(names[i]), {name, value}, names[i]);
  }
}

// Reports a tied tensor whose names have different values in the file: such a network cannot be loaded into ours.
void WeightSource::check_tied(const Entry& first, const Entry& second, const std::string& ours) {
  const auto& a = first.value;
  const auto& b = second.value;
  if (a.scalar_type() == b.scalar_type() && at::equal(a, b)) return;
  report_.misshapen.push_back({ours, "one tensor", "'" + first.name + "' and '" + second.name + "' with different values"});
}

std::string WeightSource::plain_name(const std::string& name) {
  return without_wrappers(
      name, [this](const std::string& plain) { return wanted_.count(plain) != 0; },
      [this](const std::string& prefix) {
        auto& removed = report_.removed_prefixes;
        if (std::find(removed.begin(), removed.end(), prefix) == removed.end()) removed.push_back(prefix);
      });
}

at::Tensor WeightSource::take(const std::string& name) {
  at::Tensor found = use(name);
  if (found.defined()) return found;
  if ((found = fused(name)).defined() || (found = split(name)).defined()) return found;
  return {};
}

void WeightSource::list_unused(const std::string& head) {
  std::unordered_set<std::string> series;
  for (const auto& name : wanted_)
    if (head.empty() || !name.starts_with(head + ".")) series.insert(series_of(name));
  // Returns whether the file's network computes with a tensor. `name` is its name in the file without prefixes, or the translated name.
  const auto computes_with = [this](const std::string& name) {
    return naming_.naming != nullptr && (naming_.naming->computes_with(name) || naming_.family->namings.front().computes_with(name));
  };
  std::unordered_map<std::string, bool> unused;  // unused names, each with whether the file's network needs it
  for (const auto& [name, entry] : by_name_)
    if (used_.count(name) == 0 && !is_counter(name)) unused.emplace(entry.name, series.count(series_of(name)) != 0 || computes_with(name));
  for (const auto& [name, value] : tensors_) {
    const auto found = unused.find(name);
    if (found == unused.end()) continue;
    report_.unexpected.push_back(name);
    if (found->second) report_.deeper.push_back(name);
  }
}

at::Tensor WeightSource::use(const std::string& name) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return {};
  used_.insert(name);
  return found->second.value;
}

at::Tensor WeightSource::fused(const std::string& name) {
  for (const std::string kind : {"weight", "bias"}) {
    if (!name.ends_with("in_proj_" + kind)) continue;
    const std::string stem = name.substr(0, name.size() - 8 - kind.size());
    std::vector<at::Tensor> parts;
    for (const auto* part : kProjections)
      if (has(stem + part + kind)) parts.push_back(use(stem + part + kind));
    if (parts.size() != 3 || parts[0].dim() == 0 || parts[1].sizes() != parts[0].sizes() || parts[2].sizes() != parts[0].sizes()) return {};
    report_.converted.push_back(name + " from q_proj, k_proj, v_proj");
    return at::cat(parts, 0);
  }
  return {};
}

at::Tensor WeightSource::split(const std::string& name) {
  for (const std::string kind : {"weight", "bias"})
    for (int64_t i = 0; i < 3; ++i) {
      if (!name.ends_with(kProjections[i] + kind)) continue;
      const std::string stem = name.substr(0, name.size() - 7 - kind.size());
      const at::Tensor whole = use(stem + "in_proj_" + kind);
      if (!whole.defined() || whole.dim() == 0 || whole.size(0) % 3 != 0) return {};
      report_.converted.push_back(name + " from in_proj_" + kind);
      return whole.narrow(0, i * whole.size(0) / 3, whole.size(0) / 3);
    }
  return {};
}

}  // namespace npu_train::detail
