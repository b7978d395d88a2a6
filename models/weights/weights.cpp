#include "npu_train/models/weights.hpp"

#include <ATen/core/Formatting.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_set>

#include "models/weights/weight_source.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/models/weight_resize.hpp"

namespace npu_train {
namespace {

bool optional_name(const std::string& name) { return name.ends_with("num_batches_tracked"); }

bool under(const std::string& name, const std::string& path) { return !path.empty() && name.starts_with(path + "."); }

// Returns configuration values that follow from the file's shapes and differ from the model's.
std::vector<std::string> keys_of_file(const NamedTensors& model, const NamedTensors& file) {
  std::map<std::string, std::string> here;
  for (const auto& [key, value] : configuration_of(model)) here.emplace(key, value);
  std::vector<std::string> out;
  for (const auto& [key, value] : configuration_of(file))
    if (const auto found = here.find(key); !here.empty() && (found == here.end() || found->second != value))
      out.push_back(key + "=" + value);
  return out;
}

std::string first_few(const std::vector<std::string>& names) { return detail::first_few(names, 8); }

// Returns whether all values are finite. An fp64 sum of finite values of a narrower dtype is finite.
bool is_finite(const at::Tensor& value) {
  if (!value.is_floating_point() || value.numel() == 0) return true;
  return std::isfinite(value.sum(at::kDouble).item<double>()) || value.isfinite().all().item<bool>();
}

}  // namespace

std::vector<std::string> not_finite_tensors(const NamedTensors& tensors) {
  std::vector<std::string> out;
  for (const auto& [name, value] : tensors)
    if (!is_finite(value)) out.push_back(name);
  return out;
}

WeightsReport load_weights(torch::nn::Module& module, const NamedTensors& tensors, const LoadWeightsOptions& options) {
  const NamedTensors targets = named_state(module);
  std::unordered_set<std::string> wanted;
  for (const auto& [name, value] : targets) wanted.insert(name);

  WeightsReport report;
  detail::WeightSource source(tensors, wanted, report);
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const auto& [name, target] : targets) {
    at::Tensor value = source.take(name);
    if (value.defined() && value.sizes() != target.sizes())
      if (const auto resized = resized_weight(name, value, target.sizes()); resized.defined()) {
        report.converted.push_back(str_cat(name, " ", target.sizes(), " resized from ", value.sizes()));
        value = resized;
      }
    if (!value.defined()) {
      if (!optional_name(name)) report.missing.push_back(name);
    } else if (value.sizes() != target.sizes()) {
      report.misshapen.push_back({name, str_cat(target.sizes()), str_cat(value.sizes())});
    } else if (!optional_name(name) && !c10::canCast(value.scalar_type(), target.scalar_type())) {
      report.misshapen.push_back({name, str_cat(target.scalar_type()), str_cat(value.scalar_type())});
    } else {
      report.loaded.push_back(name);
      copies.emplace_back(target, value);
    }
  }
  source.list_unused(options.head);
  report.fitting_keys = keys_of_file(targets, source.translated());
  // Tensors that are filled. A tied tensor is not missing if the file contains it under only one of its names.
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
  // Loads a head completely or not at all.
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
  for (const auto& [name, value] : targets)
    if (std::find(report.loaded.begin(), report.loaded.end(), name) != report.loaded.end() && !is_finite(value))
      report.not_finite.push_back(name);
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
  std::string out = str_cat("weights: ", loaded.size(), " loaded, ", missing.size(), " missing, ", unexpected.size(), " unexpected, ",
                            misshapen.size(), " misshapen");
  if (!naming.family.empty()) out += "; the file is " + naming.str();
  if (!not_finite.empty()) out += "\n  with values that are NaN or infinite: " + first_few(not_finite);
  if (!removed_prefixes.empty()) out += "\n  prefixes removed: " + join(removed_prefixes);
  if (!converted.empty()) out += "\n  converted: " + first_few(converted);
  if (!fresh_head.empty())
    out += "\n  head '" + fresh_head + "' has a different size in the file, or is missing there: it keeps its initial values";
  if (!missing.empty()) out += "\n  missing: " + first_few(missing);
  if (!unexpected.empty()) out += "\n  unexpected: " + first_few(unexpected);
  if (!deeper.empty()) out += "\n  tensors of layers that the model does not have: " + first_few(deeper);
  if (!misshapen.empty()) {
    std::vector<std::string> names;
    for (const auto& m : misshapen) names.push_back(m.name + " " + m.here + " here, " + m.given + " in the file");
    out += "\n  misshapen: " + first_few(names);
  }
  if (!fits() && !fitting_keys.empty()) out += "\n  the configuration that these weights fit: " + join(fitting_keys, " ");
  return out;
}

}  // namespace npu_train
