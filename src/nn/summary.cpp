#include "npu_train/nn/summary.hpp"

#include <torch/nn/module.h>

#include <algorithm>
#include <iomanip>
#include <map>
#include <set>
#include <sstream>

#include "npu_train/core/text.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/trace/op_observer.hpp"
#include "without_products.hpp"

namespace npu_train {
namespace {

// Collects the observed operators by layer and by block.
class Collector {
 public:
  Collector(const Model& model, const ParameterSet& parameters) : model_(model) {
    for (const auto& p : parameters) {
      const std::string owner = layer_of(p.name);
      if (by_name_.count(owner) == 0) {
        by_name_[owner] = layers_.size();
        const auto* module = find_module(*model.module, owner);
        layers_.push_back(
            {.name = owner, .type = module != nullptr ? module_type(*module) : "", .output_shape = {}, .parameters = 0, .flops = 0});
      }
      layers_[by_name_[owner]].parameters += p.value.numel();
    }
  }

  void see(const SeenOp& op) {
    total_ += op.flops;
    size_t layer;
    if (!op.parameter.empty()) {
      layer = by_name_.at(layer_of(op.parameter));
      if (!block_.empty()) of_block_.insert(op.parameter), layers_of_block_.insert(layers_[layer].name);
    } else {
      const std::string type = op.name == "scaled_dot_product_attention" ? "attention" : op.name;
      const std::string name = block_ + (block_.empty() ? "(" : " (") + type + ")";
      if (const auto known = by_name_.find(name); known != by_name_.end()) {
        layer = known->second;
      } else {
        layer = by_name_[name] = layers_.size();
        layers_.push_back({.name = name, .type = type, .output_shape = {}, .parameters = 0, .flops = 0});
      }
    }
    if (std::find(order_.begin(), order_.end(), layer) == order_.end()) order_.push_back(layer);
    layers_[layer].flops += op.flops;
    layers_[layer].output_shape = op.output.sizes().vec();
  }

  void begin_block(const std::string& name) {
    block_ = name, before_ = total_;
    of_block_.clear(), layers_of_block_.clear();
  }

  // Ends a block. Its parameters are those of its module, those of Block::modules, and those of each layer that passed a parameter to an
  // operator in the block. A parameter that several blocks use counts only for the first of them.
  void end_block(const Block& block, const at::Tensor& output, const ParameterSet& parameters) {
    LayerSummary row{.name = block_, .type = "", .output_shape = output.sizes().vec(), .parameters = 0, .flops = total_ - before_};
    if (const auto* module = find_module(*model_.module, block_)) row.type = module_type(*module);
    const auto inside = [&](const std::string& name) {
      return name.starts_with(block_ + ".") || of_block_.count(name) != 0 ||
             std::any_of(block.modules.begin(), block.modules.end(), [&](const auto& m) { return name.starts_with(m + "."); }) ||
             (!layer_of(name).empty() && layers_of_block_.count(layer_of(name)) != 0);
    };
    for (const auto& p : parameters)
      if (inside(p.name) && counted_.insert(p.name).second) row.parameters += p.value.numel();
    blocks_.push_back(row);
    block_.clear();
  }

  void finish(ModelSummary& summary) {
    for (const size_t i : order_) summary.layers.push_back(layers_[i]);
    for (size_t i = 0; i < layers_.size(); ++i)
      if (std::find(order_.begin(), order_.end(), i) == order_.end()) summary.layers.push_back(layers_[i]);
    summary.blocks = std::move(blocks_);
    summary.flops = total_;
  }

 private:
  const Model& model_;
  std::vector<LayerSummary> layers_, blocks_;
  std::vector<size_t> order_;
  std::map<std::string, size_t> by_name_;
  std::string block_;
  std::set<std::string> of_block_, layers_of_block_, counted_;  // parameters the block has used; their layers; parameters already counted
  int64_t total_ = 0, before_ = 0;
};

std::string shape_text(const std::vector<int64_t>& shape) { return shape.empty() ? "-" : str_cat(at::IntArrayRef(shape)); }

void write_row(std::ostringstream& out, size_t width, const LayerSummary& row) {
  out << std::left << std::setw(static_cast<int>(width)) << row.name << "  " << std::setw(18) << row.type << std::setw(22)
      << shape_text(row.output_shape) << std::right << std::setw(14) << with_commas(row.parameters) << std::setw(18)
      << with_commas(row.flops) << "\n";
}

}  // namespace

ModelSummary summarize(const Model& model, const std::map<std::string, int64_t>& sizes) {
  check(model.module != nullptr && (model.forward || !model.blocks.empty()), ErrorKind::Usage, "summarize", "the model '", model.name,
        "' has no module or no forward");
  const ParameterSet parameters = parameters_of(*model.module);
  Batch example = example_batch(model.inputs, {.sizes = sizes, .zeros = true});
  ModelSummary summary{.model = model.name, .input_shape = example.fields().front().second.sizes().vec(), .layers = {}, .blocks = {}};
  for (const auto& p : parameters) {
    summary.parameters += p.value.numel();
    if (p.value.requires_grad()) summary.trainable_parameters += p.value.numel();
  }
  for (const auto& [name, buffer] : buffers_of(*model.module)) summary.buffers += buffer.numel();

  c10::AutoGradMode no_grad(false);
  EvaluationMode evaluation(*model.module);
  at::TensorOptions like = at::TensorOptions().dtype(at::kFloat);
  for (const auto& p : parameters)
    if (p.value.is_floating_point()) {
      like = p.value.options().requires_grad(false);
      break;
    }
  Collector collector(model, parameters);
  example = example.map([&](const at::Tensor& t) { return t.is_floating_point() ? t.to(like) : t.to(like.device()); });
  translated("summarize", [&] {
    const detail::WithoutProducts shapes;
    OpObserver counter(parameters, [&](const SeenOp& op) { collector.see(op); });
    if (model.blocks.empty()) model.forward(example);
    const ForwardContext context(example);
    at::Tensor x = example.fields().front().second;
    for (const auto& block : model.blocks) {
      collector.begin_block(block.name);
      x = block.forward(context, x);
      collector.end_block(block, x, parameters);
    }
    if (counter.error() != nullptr) std::rethrow_exception(counter.error());
  });
  collector.finish(summary);
  return summary;
}

int64_t flops_per_sample(const Model& model) { return summarize(model).flops; }

std::string ModelSummary::str(bool by_layer) const {
  const auto& rows = by_layer || blocks.empty() ? layers : blocks;
  size_t width = 5;
  for (const auto& row : rows) width = std::max(width, row.name.size());
  std::ostringstream out;
  out << model << ", input " << shape_text(input_shape) << "\n";
  out << std::left << std::setw(static_cast<int>(width)) << "name"
      << "  " << std::setw(18) << "type" << std::setw(22) << "output" << std::right << std::setw(14) << "parameters" << std::setw(18)
      << "FLOPs"
      << "\n";
  for (const auto& row : rows) write_row(out, width, row);
  out << with_commas(parameters) << " parameters (" << with_commas(trainable_parameters) << " trainable), " << with_commas(flops)
      << " FLOPs a sample (forward; a multiply-add is 2)\n";
  return out.str();
}

}  // namespace npu_train
