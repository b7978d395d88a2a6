#include "npu_train/engine/model_precision.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "npu_train/core/error.hpp"
#include "npu_train/core/launch.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/sim_npu.hpp"
#include "npu_train/nn/layers.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/precision/policy.hpp"
#include "npu_train/trace/op_observer.hpp"

namespace npu_train {
namespace {

/// Returns whether the model's parameters themselves are in low precision ("bf16-true").
bool has_low_parameters(const Precision& precision) {
  return precision.low_precision_dtype() != at::kFloat && !precision.name().ends_with("-mixed");
}

/// Returns the paths of the modules that a block runs, except norms; empty if unknown.
std::vector<std::string> paths_of(const Model& model, const Block& block) {
  if (!block.modules.empty()) return block.modules;
  if (block.name == "head" && !model.head.empty()) return {model.head};
  if (model.module == nullptr || find_module(*model.module, block.name) == nullptr) return {};
  return {block.name};
}

std::vector<std::string> block_names(const Model& model) {
  std::vector<std::string> out;
  for (const auto& block : model.blocks) out.push_back(block.name);
  return out;
}

bool is_class(const std::string& entry) { return !fp32_ops_of_class(entry).empty(); }

bool names_block(const Model& model, const std::string& entry) {
  return std::any_of(model.blocks.begin(), model.blocks.end(), [&](const Block& b) { return in_modules(b.name, {entry}); });
}

/// Returns the normalisation layers named directly in low_precision_modules.
std::set<std::string> cast_norms(const AmpModules& modules, const std::vector<std::string>& norms) {
  std::set<std::string> out;
  for (const auto& parameter : norms)
    if (modules.casts(layer_of(parameter))) out.insert(layer_of(parameter));
  return out;
}

/// Throws for an invalid entry of low_precision_modules; warns about one without effect.
void check_exception(const Model& model, const AmpModules& modules, const std::string& entry, const Precision& precision) {
  constexpr const char* kWhere = "amp.low_precision_modules";
  const bool is_block = names_block(model, entry);
  const bool is_norm = model.module != nullptr && !cast_norms({{}, {entry}}, norm_parameters_of(*model.module)).empty();
  check(is_block || is_norm, ErrorKind::Usage, kWhere, "'", entry,
        "' is neither a block nor a normalisation layer of the model; blocks: ", join(block_names(model)));
  if (precision.low_precision_dtype() == at::kFloat) return;
  const auto changes = [&](const Block& b) { return in_modules(b.name, {entry}) && in_modules(b.name, modules.fp32); };
  if (std::any_of(model.blocks.begin(), model.blocks.end(), changes) || (is_norm && has_low_parameters(precision))) return;
  if (is_block)
    log_warning(kWhere, ": '", entry, "' computes in low precision anyway: nothing above it is in amp.fp32_modules");
  else
    log_warning(kWhere, ": '", entry, "' has no effect: in ", precision.name(), " all parameters are fp32");
}

void check_norm(const Model& model, const AmpModules& modules, const std::string& norm) {
  const auto* module = model.module == nullptr ? nullptr : find_module(*model.module, norm);
  const auto statistics = module == nullptr ? std::vector<at::Tensor>{} : module->buffers(/*recurse=*/false);
  check(std::none_of(statistics.begin(), statistics.end(), [](const at::Tensor& b) { return b.is_floating_point(); }), ErrorKind::Usage,
        "amp.low_precision_modules", "'", norm, "' keeps running statistics, which need fp32, as do its parameters; ",
        "hint: name layers without statistics (LayerNorm, GroupNorm)");
  const Block* owner = nullptr;
  for (const auto& block : model.blocks)
    if (in_modules(norm, paths_of(model, block))) owner = &block;
  for (const auto& block : model.blocks) {  // a layer outside of all blocks counts as part of the first block and of the last one
    const bool concerned = owner != nullptr ? owner == &block : &block == &model.blocks.front() || &block == &model.blocks.back();
    check(!concerned || !modules.keeps_fp32(block.name), ErrorKind::Usage, "amp.low_precision_modules", "'", norm,
          "' cannot have low precision inside the block '", block.name, "', which computes in fp32; hint: name the block instead");
  }
}

bool has_product_in_fp32(const Precision& precision) {
  const std::set<std::string> products{"linear", "addmm",  "matmul", "mm",          "bmm",
                                       "conv1d", "conv2d", "conv3d", "convolution", "_convolution"};
  const auto ops = precision.fp32_ops();
  if (ops.empty()) return false;
  return std::any_of(ops.names().begin(), ops.names().end(), [&](const std::string& op) { return products.contains(op); });
}

bool is_product(const torch::nn::Module& module) {
  return dynamic_cast<const Linear*>(&module) != nullptr || dynamic_cast<const Conv2d*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::LinearImpl*>(&module) != nullptr || dynamic_cast<const torch::nn::Conv1dImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::Conv2dImpl*>(&module) != nullptr || dynamic_cast<const torch::nn::Conv3dImpl*>(&module) != nullptr;
}

}  // namespace

Device run_device(const RunConfig& config) {
  if (Device::parse(config.device == "auto" ? "cpu" : config.device).kind == "sim_npu") start_sim_npu(config.sim_npu);
  auto device = resolve_device(config.device);
  const auto launch = launch_of_environment();
  const int count = backend_of(device).count();
  if (launch.local_world_size == 1 || count == 1 || config.device.find(':') != std::string::npos) return device;
  check(launch.local_rank < count, ErrorKind::Device, "device", "rank ", launch.rank, " is process ", launch.local_rank + 1, " of ",
        launch.local_world_size, " on this host, which has ", count, " devices of the kind ", device.kind,
        "; hint: start one process for each device");
  device.index = launch.local_rank;
  return device;
}

PrecisionOptions precision_options(const RunConfig& config) {
  PrecisionOptions out;
  out.mode = config.precision;
  out.grad_scaler = config.grad_scaler;
  out.cpu_low_precision = config.cpu_low_precision;
  out.fp32_ops = config.amp.fp32_ops;
  std::copy_if(config.amp.fp32_modules.begin(), config.amp.fp32_modules.end(), std::back_inserter(out.fp32_modules), is_class);
  return out;
}

bool has_module_paths(const AmpOptions& amp) {
  return !amp.low_precision_modules.empty() || !std::all_of(amp.fp32_modules.begin(), amp.fp32_modules.end(), is_class);
}

AmpModules amp_modules(const AmpOptions& options) {
  AmpModules out{options.fp32_modules, options.low_precision_modules};
  out.check();
  return out;
}

void keep_in_fp32(Model& model, const AmpModules& modules, const Device& device, const Precision& precision) {
  if (modules.fp32.empty() && modules.low.empty()) return;
  for (const auto& entry : modules.fp32)
    check(is_class(entry) || names_block(model, entry), ErrorKind::Usage, "amp.fp32_modules", "the model has no block '", entry,
          "'; allowed: ", join(block_names(model)), "; or a class of layers: ", join(fp32_classes()));
  for (const auto& entry : modules.low) check_exception(model, modules, entry, precision);
  const bool low_parameters = has_low_parameters(precision);
  for (auto& block : model.blocks) {
    if (!modules.keeps_fp32(block.name)) continue;
    const bool give_back = low_parameters && block.name != model.blocks.back().name;  // the next block expects low-precision inputs
    block.forward = [inner = block.forward, device, give_back](const ForwardContext& context, const at::Tensor& x) {
      const Fp32Region region(device);
      const auto y = inner(context, region.in(x));
      return give_back ? y.to(x.scalar_type()) : y;
    };
  }
  if (!model.blocks.empty()) model = chain_blocks(std::move(model));
}

std::vector<std::string> fp32_parameters(const Model& model, const AmpModules& modules, const std::vector<std::string>& norms,
                                         const ParameterSet& parameters, const Precision& precision) {
  if (!has_low_parameters(precision)) return norms;
  const auto cast = cast_norms(modules, norms);
  for (const auto& norm : cast) check_norm(model, modules, norm);
  std::vector<std::string> out, paths;
  for (const auto& name : norms)
    if (cast.count(layer_of(name)) == 0) out.push_back(name);
  for (const auto& block : model.blocks) {
    if (!modules.keeps_fp32(block.name)) continue;
    const auto own = paths_of(model, block);
    check(!own.empty(), ErrorKind::Usage, "amp.fp32_modules", "the block '", block.name,
          "' names no modules, so its parameters cannot stay in fp32 in a '-true' precision; hint: use bf16-mixed or 16-mixed, or set "
          "Block::modules in a model of your own");
    paths.insert(paths.end(), own.begin(), own.end());
  }
  for (const auto& p : parameters)
    if (in_modules(p.name, paths)) out.push_back(p.name);
  return out;
}

std::vector<std::string> autocast_weights(const Model& model, const RunConfig& config, const Device& device, const ParameterSet& parameters,
                                          const Precision& precision) {
  const bool casts = precision.low_precision_dtype() != at::kFloat && !has_low_parameters(precision);
  if (!casts || model.module == nullptr || has_product_in_fp32(precision)) return {};
  if (precision_policy(precision_options(config), device).emulated) return {};
  const auto modules = amp_modules(config.amp);
  // If some blocks compute in fp32, takes only layers that are known to run in other blocks.
  std::vector<std::string> paths;
  const bool has_fp32 = std::any_of(model.blocks.begin(), model.blocks.end(), [&](const Block& b) { return modules.keeps_fp32(b.name); });
  for (const auto& block : model.blocks)
    if (const auto own = paths_of(model, block); has_fp32 && !modules.keeps_fp32(block.name))
      paths.insert(paths.end(), own.begin(), own.end());
  std::set<std::string> tied;
  for (const auto& entry : parameters.aliases()) tied.insert(entry.second);
  std::vector<std::string> out;
  for (const auto& item : model.module->named_modules()) {
    const auto name = item.key().empty() ? "weight" : item.key() + ".weight";
    const auto* found = is_product(*item.value()) ? parameters.find(name) : nullptr;
    if (found != nullptr && !tied.contains(name) && (!has_fp32 || in_modules(name, paths))) out.push_back(name);
  }
  return out;
}

namespace {

/// Returns the layers of a forward, in execution order.
std::vector<LayerPrecision> watched_forward(const Model& model, Task& task, const Precision& precision, const Device& device) {
  std::vector<LayerPrecision> out;
  const auto parameters = task.parameters();
  const OpObserver observer(parameters, [&](const SeenOp& seen) {
    if (seen.parameter.empty()) return;
    const auto layer = layer_of(seen.parameter);
    auto row = std::find_if(out.begin(), out.end(), [&](const LayerPrecision& l) { return l.name == layer; });
    if (row == out.end()) row = out.insert(out.end(), LayerPrecision{.name = layer, .op = {}, .computes = {}, .parameters = {}});
    row->op = seen.name;  // the last operator counts, because torch::nn::Linear first transposes its weight
    row->computes = dtype_name(seen.output.scalar_type());
    for (const auto& p : parameters)
      if (p.name == seen.parameter) row->parameters = dtype_name(p.value.scalar_type());
  });
  const at::NoGradGuard no_grad;
  const auto batch =
      example_batch(model.inputs, {.samples = 2, .zeros = true}).map([&](const at::Tensor& t) { return t.to(device.c10()); });
  const auto scope = precision.forward_scope();
  task.forward(precision.cast_input(batch));
  return out;
}

}  // namespace

PrecisionPolicy precision_policy(const RunConfig& config, const Parts& parts) {
  return translated("precision_policy", [&] {
    const Device device = run_device(config);
    const auto modules = amp_modules(config.amp);
    auto options = precision_options(config);
    auto policy = precision_policy(options, device);
    if (policy.dtype != at::kFloat) {
      policy.fp32_modules = modules.fp32;
      policy.low_precision_modules = modules.low;
    }
    if (config.model.name.empty()) return policy;
    const auto precision = make_precision(options, device);
    Model model = parts.models.make(config.model, "model");
    tune(model, config.model, parts, static_cast<uint64_t>(config.seed));
    keep_in_fp32(model, modules, device, *precision);
    model.module->to(device.c10());
    const auto task = parts.tasks.make(config.task, "task", model, parts.metrics);
    task->to(device.c10());
    const auto all = task->parameters();
    precision->prepare(all, fp32_parameters(model, modules, task->norm_parameters(), all, *precision));
    task->set_training(true);
    policy.layers = watched_forward(model, *task, *precision, device);
    const auto met = precision->fp32_ops().met();
    const auto is_met = [&](const std::string& op) { return std::find(met.begin(), met.end(), op) != met.end(); };
    if (policy.fp32_ops.empty()) return policy;
    for (const auto& op : config.amp.fp32_ops)
      if (!is_met(op)) policy.fp32_ops_not_met.push_back(op);
    for (const auto& entry : options.fp32_modules) {
      const auto ops = fp32_ops_of_class(entry);
      if (std::none_of(ops.begin(), ops.end(), is_met)) policy.fp32_ops_not_met.push_back(entry);
    }
    return policy;
  });
}

}  // namespace npu_train
