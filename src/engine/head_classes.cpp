#include "engine/head_classes.hpp"

#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/data/relabelled.hpp"
#include "npu_train/nn/module_state.hpp"

namespace npu_train::detail {
namespace {

// Pairs of indices: that of a class in the model, and that of the same class in the file.
using Rows = std::vector<std::pair<int64_t, int64_t>>;

Rows rows_of_both(const std::vector<std::string>& here, const std::vector<std::string>& there) {
  Rows out;
  for (size_t i = 0; i < here.size(); ++i)
    if (const auto found = std::find(there.begin(), there.end(), here[i]); found != there.end())
      out.emplace_back(static_cast<int64_t>(i), found - there.begin());
  return out;
}

// Returns whether both tensors have a row for each of their classes, and are equal in all other dimensions.
bool have_outputs(const at::Tensor& own, size_t classes, const at::Tensor& theirs, size_t of_file) {
  return own.dim() > 0 && theirs.dim() == own.dim() && own.size(0) >= static_cast<int64_t>(classes) &&
         theirs.size(0) >= static_cast<int64_t>(of_file) && own.sizes().slice(1) == theirs.sizes().slice(1);
}

}  // namespace

std::vector<std::string> move_head_to_classes(WeightsFile& file, const Model& model, const std::vector<std::string>& classes) {
  if (classes.empty() || file.classes.empty() || classes == file.classes) return {};
  const auto difference = difference_of_classes(classes, file.classes);
  const auto how = difference.empty() ? std::string("another order") : difference;
  check(!model.head.empty(), ErrorKind::Checkpoint, "weights", "their classes are not those of the data (", how,
        "), and the model declares no head in which they could be found; hint: set Model::head");
  const auto rows = rows_of_both(classes, file.classes);
  const auto in_head = [&](const std::string& name) { return name.starts_with(model.head + "."); };
  if (rows.empty()) std::erase_if(file.tensors, [&](const auto& t) { return in_head(t.first); });
  std::vector<std::string> out;
  const c10::AutoGradMode no_grad(false);
  for (const auto& own : named_state(*model.module)) {
    const auto found = std::find_if(file.tensors.begin(), file.tensors.end(), [&](const auto& t) { return t.first == own.first; });
    if (!in_head(own.first) || found == file.tensors.end() || !have_outputs(own.second, classes.size(), found->second, file.classes.size()))
      continue;
    auto whole = own.second.detach().clone();
    for (const auto& [here, there] : rows) whole.select(0, here).copy_(found->second.select(0, there));
    found->second = whole;
    out.push_back(str_cat(own.first, ": the outputs of ", rows.size(), " of ", classes.size(), " classes, by name (", how, ")"));
  }
  return out;
}

}  // namespace npu_train::detail
