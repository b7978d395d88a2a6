#include "export/records.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <set>

#include "npu_train/base/storage.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/trace/operator_values.hpp"

namespace npu_train::onnx {
namespace {

// Recorded batch sizes. Neither is 1, because a size of 1 broadcasts.
constexpr int64_t kBatch = 2, kOtherBatch = 3;

// Image sizes are fixed unless the caller names them, because compilers need fixed sizes, and few networks accept any size.
bool free_by_default(const std::string& name) { return name != "height" && name != "width"; }

// Returns `size` rows along a dimension, truncated or repeated.
at::Tensor resized(const at::Tensor& t, int64_t dim, int64_t size) {
  if (t.size(dim) == size) return t;
  return t.index_select(dim, at::arange(size, t.options().dtype(at::kLong).requires_grad(false)).remainder(t.size(dim)));
}

void check_input(const char* where, const InputSpec& spec, const at::Tensor& t) {
  bool fits = static_cast<size_t>(t.dim()) == spec.shape.size() && t.numel() > 0;
  for (size_t d = 0; fits && d < spec.shape.size(); ++d)
    fits = spec.shape[d].free() || spec.shape[d].size == t.size(static_cast<int64_t>(d));
  check(fits, ErrorKind::Usage, where, "the example's '", spec.name, "' has the shape ", t.sizes(), "; the model accepts ", spec.str());
}

// True if an operator ("size", "numel") reads no element of its tensors.
bool reads_shape_only(const std::string& name) {
  static const std::set<std::string> names{"size",
                                           "sym_size",
                                           "stride",
                                           "sym_stride",
                                           "numel",
                                           "sym_numel",
                                           "dim",
                                           "is_same_size",
                                           "is_floating_point",
                                           "is_complex",
                                           "is_signed",
                                           "result_type",
                                           "can_cast",
                                           "is_contiguous",
                                           "storage_offset",
                                           "is_pinned",
                                           "is_conj",
                                           "is_neg",
                                           "_is_zerotensor",
                                           "promote_types",
                                           "_has_compatible_shallow_copy_type"};
  return names.count(name) != 0;
}

}  // namespace

std::unordered_map<const void*, std::vector<size_t>> writes_in(const detail::OpGraph& graph) {
  std::unordered_map<const void*, std::vector<size_t>> out;
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const auto& op = graph.ops()[i];
    const auto& arguments = op.op.schema().arguments();
    for (size_t k = 0; k < arguments.size(); ++k) {
      const auto* alias = arguments[k].alias_info();
      if (alias == nullptr || !alias->isWrite()) continue;
      for (const auto& t : detail::tensors_of(std::vector<c10::IValue>{op.args[k]})) out[storage_of(t)].push_back(i);
    }
  }
  out.erase(nullptr);
  return out;
}

std::string described(const detail::OpGraph& graph, size_t op) {
  const auto& made = graph.ops()[op];
  std::string layer = made.layer;
  for (const auto value : made.reads)
    if (layer.empty() && !graph.values()[value].name.empty()) layer = layer_of(graph.values()[value].name);
  const auto& schema = made.op.schema();
  return str_cat("operator ", schema.name(), schema.overload_name().empty() ? "" : ".", schema.overload_name(),
                 layer.empty() ? std::string() : " of the layer '" + layer + "'", " (number ", op + 1, " of the forward)");
}

Records::Records(const Subject& subject, const Batch& example, const std::vector<std::string>& dynamic,
                 const std::function<bool(const c10::OperatorHandle&)>& known)
    : where_(subject.where), inputs_(subject.inputs) {
  choose_inputs(example);
  choose_free_sizes(example, dynamic);
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  for (size_t r = 0; r < 1 + free_.size(); ++r) {
    batches_.push_back(batch_of(example, r));
    graphs_.push_back(detail::OpGraph::record([&] { return subject.forward(batches_[r]); }, subject.parameters, subject.buffers,
                                              [&](const c10::OperatorHandle& op) { return !known(op); }));
    collect_tensors(r);
    must_match(r);
  }
}

void Records::choose_inputs(const Batch& example) {
  if (inputs_.empty()) {
    for (const auto& [name, tensor] : example.fields()) {
      InputSpec spec{.name = name, .dtype = tensor.scalar_type(), .shape = {}, .range = {}};
      for (int64_t d = 0; d < tensor.dim(); ++d)
        spec.shape.push_back(d == 0 && tensor.size(0) == example.rows() ? Extent("batch") : Extent(tensor.size(d)));
      inputs_.push_back(std::move(spec));
    }
  }
  check(!inputs_.empty(), ErrorKind::Usage, where_, "the example batch is empty; hint: pass example_batch(model.inputs)");
  for (const auto& spec : inputs_) check_input(where_, spec, example.at(spec.name));
}

void Records::choose_free_sizes(const Batch& example, const std::vector<std::string>& dynamic) {
  std::vector<std::string> names;
  for (const auto& spec : inputs_) {
    for (size_t d = 0; d < spec.shape.size(); ++d) {
      const auto& extent = spec.shape[d];
      if (!extent.free() || std::find(names.begin(), names.end(), extent.name) != names.end()) continue;
      names.push_back(extent.name);
      const bool wanted =
          dynamic.empty() ? free_by_default(extent.name) : std::find(dynamic.begin(), dynamic.end(), extent.name) != dynamic.end();
      if (!wanted) continue;
      const auto usual = example.at(spec.name).size(static_cast<int64_t>(d));
      // Makes the other value smaller, because a table of positions may end at the usual size.
      if (extent.name == "batch")
        free_.push_back({extent.name, kBatch, kOtherBatch});
      else
        free_.push_back({extent.name, usual, usual > 1 ? usual - 1 : 2});
    }
  }
  for (const auto& name : dynamic)
    check(std::find(names.begin(), names.end(), name) != names.end(), ErrorKind::Usage, where_, "no input has a free size '", name,
          "'; the inputs have: ", names.empty() ? "none" : join(names));
}

Batch Records::batch_of(const Batch& example, size_t record) const {
  Batch out;
  for (const auto& spec : inputs_) {
    at::Tensor t = example.at(spec.name);
    for (size_t d = 0; d < spec.shape.size(); ++d) {
      const auto is_it = [&](const FreeSize& size) { return size.name == spec.shape[d].name; };
      const auto found = std::find_if(free_.begin(), free_.end(), is_it);
      if (found == free_.end()) continue;
      const bool varied = record == 1 + static_cast<size_t>(found - free_.begin());
      t = resized(t, static_cast<int64_t>(d), varied ? found->other : found->base);
    }
    out.set(spec.name, t.clone());  // a copy, because the forward may change it
  }
  out.size = out.rows();
  out.weight = static_cast<double>(out.size);
  return out;
}

void Records::collect_tensors(size_t record) {
  const auto& graph = graphs_[record];
  auto& tensors = tensors_.emplace_back(graph.values().size());
  const auto note = [&](const std::vector<c10::IValue>& held, const std::vector<size_t>& values) {
    const auto list = detail::tensors_of(held);
    for (size_t i = 0; i < values.size(); ++i) tensors[values[i]] = list[i];
  };
  for (const auto& op : graph.ops()) {
    note(op.args, op.reads);
    note(op.outputs, op.gives);
  }
  for (const auto& result : graph.results()) tensors[result.value] = result.tensor;
}

void Records::must_match(size_t record) const {
  if (record == 0) return;
  const auto &a = graphs_[0], &b = graphs_[record];
  const auto& size = free_[record - 1];
  const auto same = [&](size_t i) {
    return a.ops()[i].op.operator_name() == b.ops()[i].op.operator_name() && a.ops()[i].reads == b.ops()[i].reads &&
           a.ops()[i].gives == b.ops()[i].gives;
  };
  for (size_t i = 0; i < a.ops().size() || i < b.ops().size(); ++i) {
    const bool in_both = i < a.ops().size() && i < b.ops().size();
    if (in_both && same(i)) continue;
    const auto of = [i](const detail::OpGraph& g) { return i < g.ops().size() ? described(g, i) : std::string("its end"); };
    throw Error(ErrorKind::Usage, where_,
                str_cat("the forward runs ", of(a), " where ", size.name, " is ", size.base, ", and ", of(b), " where it is ", size.other),
                "a file has one sequence of operators: remove the branch or loop over this size, or fix the size (the option dynamic)");
  }
  const auto results = [](const detail::OpGraph& g) {
    std::vector<std::pair<std::string, size_t>> out;
    for (const auto& result : g.results()) out.emplace_back(result.name, result.value);
    return out;
  };
  check(results(a) == results(b), ErrorKind::Usage, where_, "the forward returns other values where ", size.name, " is ", size.other,
        " than where it is ", size.base);
}

std::optional<size_t> Records::value_of_input(size_t input) const {
  const auto& t = batches_[0].at(inputs_[input].name);
  for (size_t v = 0; v < tensors_[0].size(); ++v)
    if (graphs_[0].values()[v].given_by == detail::GraphValue::kOutside && tensors_[0][v].is_same(t)) return v;
  return std::nullopt;
}

bool Records::host_reads(size_t op, const std::vector<bool>& constant, std::vector<std::string>& warnings) const {
  const auto& made = graph().ops()[op];
  if (!made.gives.empty()) return false;
  if (reads_shape_only(made.name())) return true;
  if (std::all_of(made.reads.begin(), made.reads.end(), [&](size_t value) { return constant[value]; })) return true;
  if (made.name() != "equal")
    refuse(op, made.outputs.empty() ? "gives no tensor" : "gives the host a number or a decision that depends on the input",
           "keep it a tensor: torch::where instead of a branch, no .item()");
  // torch::nn::MultiheadAttention tests whether query, key and value are equal.
  if (made.reads[0] != made.reads[1])
    warnings.push_back(described(graph(), op) + " compares two values; the file has the branch that was taken for the example");
  return true;
}

void Records::refuse(size_t op, const std::string& why, const std::string& hint) const {
  const auto what = op < graph().ops().size() ? described(graph(), op) : std::string("the end of the forward");
  throw Error(ErrorKind::Usage, where_, what + " " + why, hint);
}

std::optional<Size> Records::size_of(const Ints& by_record) const {
  Size out{.factor = by_record[0], .free = {}};
  for (size_t i = 0; i < free_.size(); ++i) {
    const auto base = by_record[0], other = by_record[1 + i];
    if (base == other) continue;
    if (base <= 0 || base * free_[i].other != other * free_[i].base || out.factor % free_[i].base != 0) return std::nullopt;
    out.factor /= free_[i].base;
    out.free.push_back(i);
  }
  return out;
}

}  // namespace npu_train::onnx
