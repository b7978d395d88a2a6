#include "npu_train/models/weights.hpp"

#include <algorithm>
#include <map>

#include "models/families.hpp"
#include "models/weights/weight_source.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

const detail::Naming& naming_of(const detail::ModelFamily& family, const std::string& library) {
  for (const auto& naming : family.namings)
    if (std::find(naming.libraries.begin(), naming.libraries.end(), library) != naming.libraries.end()) return naming;
  std::vector<std::string> known;
  for (const auto& naming : family.namings) known.insert(known.end(), naming.libraries.begin(), naming.libraries.end());
  throw Error(ErrorKind::Usage, "weights", "'" + library + "' has no " + family.name + "; allowed: " + join(known));
}

bool is_projection(const std::string& name, const std::string& part) {
  return name.ends_with("." + part + "weight") || name.ends_with("." + part + "bias");
}

std::string kind_of(const std::string& name) { return name.ends_with("bias") ? "bias" : "weight"; }

// Returns the tensors, in our naming, that `target` has in place of `name`.
std::vector<std::string> places(const std::string& name, const detail::Naming& target) {
  if (target.splits_projections && is_projection(name, "in_proj_")) {
    const auto stem = name.substr(0, name.rfind("in_proj_"));
    std::vector<std::string> out;
    for (const auto* part : detail::kProjections) out.push_back(stem + part + kind_of(name));
    return out;
  }
  if (!target.splits_projections)
    for (const std::string part : detail::kProjections)
      if (is_projection(name, part)) return {name.substr(0, name.rfind(part)) + "in_proj_" + kind_of(name)};
  return {name};
}

std::vector<std::string> families_with_names() {
  std::vector<std::string> out;
  for (const auto& family : detail::model_families())
    if (!family.namings.empty()) out.push_back(family.name);
  return out;
}

}  // namespace

std::vector<std::string> weight_namings() { return {"torchvision", "timm", "hf", "hf4"}; }

std::string FoundNaming::str() const {
  if (family.empty()) return "of an unknown network";
  static const std::map<std::string, std::string> titles = {
      {"torchvision", "torchvision and npu_train"},     {"timm", "timm"},
      {"hf", "Hugging Face (transformers 5)"},          {"hf4", "Hugging Face (files, transformers 4)"},
      {"deit", "Hugging Face's DeiT (transformers 5)"}, {"deit4", "Hugging Face's DeiT (files, transformers 4)"}};
  const auto& all = detail::model_families();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& f) { return f.name == family; });
  std::vector<std::string> libraries;
  for (const auto& library : naming_of(*found, naming).libraries)
    libraries.push_back(!found->in_torchvision && library == "torchvision" ? "npu_train" : titles.at(library));
  return "a " + family + " with the names of " + join(libraries);
}

FoundNaming find_naming(const std::vector<std::string>& names) {
  std::vector<std::string> plain;
  for (const auto& name : names)
    plain.push_back(detail::without_wrappers(
        name, [](const auto&) { return false; }, [](const auto&) {}));
  const auto found = detail::known_naming(plain);
  return found.naming == nullptr ? FoundNaming{} : FoundNaming{found.family->name, found.naming->libraries.front()};
}

RenamedWeights renamed_weights(const NamedTensors& tensors, const std::string& naming) {
  const auto all = weight_namings();
  check(std::find(all.begin(), all.end(), naming) != all.end(), ErrorKind::Usage, "weights", "'", naming,
        "' is no naming; allowed: ", join(all));
  WeightsReport report;
  const std::unordered_set<std::string> none;
  detail::WeightSource source(tensors, none, report);
  const auto* family = source.family();
  check(family != nullptr, ErrorKind::Checkpoint, "weights", "the ", tensors.size(),
        " tensors are not those of a known network, so their names cannot be translated; known: ", join(families_with_names()),
        " with the names of ", join(all));
  const auto& target = naming_of(*family, naming);
  RenamedWeights out{.from = report.naming};
  std::unordered_set<std::string> written;
  for (const auto& [name, value] : source.translated())
    for (const auto& ours : places(name, target)) {
      const auto theirs = target.theirs(ours);
      check(!theirs.empty() || !family->namings.front().computes_with(ours), ErrorKind::Checkpoint, "weights", "'", ours,
            "' has no name in ", naming, ", whose network has no such part");
      if (theirs.empty() || !written.insert(theirs).second) continue;
      auto tensor = source.take(ours);
      if (tensor.defined() && tensor.dim() == 2 && target.transposes(theirs)) tensor = tensor.t();
      check(tensor.defined(), ErrorKind::Checkpoint, "weights", "'", ours,
            "' cannot be put together from the file: a part of it is missing or has another shape");
      out.tensors.emplace_back(theirs, tensor.contiguous());
    }
  source.list_unused("");
  out.omitted = report.unexpected;
  return out;
}

}  // namespace npu_train
