#include "npu_train/nn/checkpoint_plan.hpp"

#include <torch/nn/module.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>
#include <utility>

#include "nn/unmoved.hpp"
#include "npu_train/base/storage.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/nn/checkpointing.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/nn/saved_tensors.hpp"
#include "npu_train/trace/op_observer.hpp"

namespace npu_train {
namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw Error(
      ErrorKind::Usage, "trainer.gradient_checkpointing",
      "'" + text + "' is not one of none, blocks, every:N, budget:SIZE; a size is a number and B, KiB, MiB or GiB, as in budget:2GiB");
}

int64_t held_by(const at::Tensor& t) { return t.has_storage() ? static_cast<int64_t>(t.storage().nbytes()) : 0; }

// Returns the bytes that autograd saves for fn(x), each storage once, without parameters (`seen`) and x.
template <class Fn>
int64_t saved_by(Fn fn, const at::Tensor& x, std::set<const void*> seen, at::Tensor& y) {
  int64_t bytes = 0;
  seen.insert(storage_of(x));
  const SavedTensorHooks hooks([&](const at::Tensor& t, bool) {
    if (seen.insert(storage_of(t)).second) bytes += held_by(t);
    return [t] { return t; };
  });
  y = fn(x);
  return bytes;
}

// Returns the buffers that a block changes: those of its module or, without a module, those that are in no other block's module.
std::vector<at::Tensor> buffers_of_block(const Model& model, const Block& block) {
  if (const auto* own = model.module ? find_module(*model.module, block.name) : nullptr) return own->buffers();
  std::vector<at::Tensor> out;
  if (!model.module) return out;
  for (const auto& [name, tensor] : buffers_of(*model.module)) {
    const bool elsewhere = std::any_of(model.blocks.begin(), model.blocks.end(), [&, &name = name](const Block& b) {
      return find_module(*model.module, b.name) != nullptr && name.starts_with(b.name + ".");
    });
    if (!elsewhere) out.push_back(tensor);
  }
  return out;
}

std::vector<BlockCost> measure(const Model& model, const Batch& inputs) {
  std::vector<BlockCost> out;
  const ParameterSet parameters = parameters_of(*model.module);
  std::set<const void*> apart;
  for (const auto& p : parameters) apart.insert(storage_of(p.value));
  const ForwardContext context(inputs);
  at::Tensor x = inputs.fields().front().second;
  for (const auto& block : model.blocks) {
    BlockCost cost{.name = block.name, .input_bytes = held_by(x), .saved_bytes = 0, .flops = 0};
    at::Tensor y;
    {
      const OpObserver observer(parameters, [&](const SeenOp& op) { cost.flops += op.flops; });
      cost.saved_bytes = saved_by([&](const at::Tensor& t) { return block.forward(context, t); }, x, apart, y);
    }
    out.push_back(cost);
    x = y.detach().requires_grad_(true);
  }
  return out;
}

}  // namespace

CheckpointPlan CheckpointPlan::parse(const std::string& text) {
  if (text == "none") return {};
  if (text == "blocks") return {.kind = Kind::Blocks};
  if (text.starts_with("every:")) {
    const char *begin = text.data() + 6, *end = text.data() + text.size();
    CheckpointPlan plan{.kind = Kind::Every};
    const auto [stop, error] = std::from_chars(begin, end, plan.every);
    if (begin == end || stop != end || error != std::errc() || plan.every < 1) refuse(text);
    return plan;
  }
  const auto bytes = text.starts_with("budget:") ? parse_bytes(text.substr(7)) : std::nullopt;
  if (!bytes || *bytes < 1) refuse(text);
  return {.kind = Kind::Budget, .budget = *bytes};
}

std::vector<BlockCost> block_costs(const Model& model, const std::function<Batch(int64_t)>& small, int64_t batch) {
  check(model.module != nullptr && !model.blocks.empty(), ErrorKind::Usage, "block_costs", "the model '", model.name, "' has no blocks");
  const auto run = [&](int64_t n) {
    const Batch inputs = small(n);
    check(!inputs.fields().empty(), ErrorKind::Usage, "block_costs", "a batch of ", n, " samples has no field");
    const RandomState random({c10::Device(c10::kCPU), inputs.fields().front().second.device()});
    const RandomState::Scope same(random);
    return measure(model, inputs);
  };
  const auto buffers = model.module->buffers();
  const detail::Unmoved same_buffers(buffers);
  const bool training = model.module->is_training();
  model.module->train();
  const auto two = run(2), three = run(3);
  model.module->train(training);

  std::vector<BlockCost> out = two;
  const auto extrapolate = [&](int64_t a, int64_t b) { return std::max<int64_t>(0, a + (b - a) * (batch - 2)); };
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].input_bytes = extrapolate(two[i].input_bytes, three[i].input_bytes);
    out[i].saved_bytes = extrapolate(two[i].saved_bytes, three[i].saved_bytes);
    out[i].flops = extrapolate(two[i].flops, three[i].flops);
  }
  return out;
}

int64_t peak_bytes(const std::vector<BlockCost>& costs, const std::vector<bool>& recomputed) {
  // In a block's backward, the tensors saved by earlier blocks and all tensors of this block are alive.
  int64_t kept = 0, peak = 0;
  for (size_t i = 0; i < costs.size(); ++i) {
    kept += costs[i].input_bytes;
    peak = std::max(peak, kept + costs[i].saved_bytes);
    if (!recomputed[i]) kept += costs[i].saved_bytes;
  }
  return std::max(peak, kept);
}

std::vector<bool> choose_checkpoints(const std::vector<BlockCost>& costs, int64_t budget) {
  std::vector<bool> recomputed(costs.size(), false);
  if (costs.empty()) return recomputed;
  std::vector<size_t> order(costs.size() - 1);
  std::iota(order.begin(), order.end(), size_t{0});
  const auto worth = [&](size_t i) {
    return static_cast<double>(costs[i].saved_bytes) / static_cast<double>(std::max<int64_t>(1, costs[i].flops));
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return worth(a) > worth(b); });
  for (const size_t i : order) {
    if (peak_bytes(costs, recomputed) <= budget) break;
    recomputed[i] = true;
  }
  return recomputed;
}

Model with_checkpoints(Model model, const std::vector<bool>& recomputed, int64_t every) {
  check(!model.blocks.empty(), ErrorKind::Usage, "trainer.gradient_checkpointing", "the model '", model.name,
        "' declares no blocks; hint: call npu_train::checkpoint in its forward, or give the Model its blocks");
  check(recomputed.size() == model.blocks.size() && every >= 1, ErrorKind::Internal, "with_checkpoints", recomputed.size(), " marks for ",
        model.blocks.size(), " blocks");
  const Model original = model;
  model.blocks.clear();
  for (size_t i = 0; i < original.blocks.size();) {
    if (!recomputed[i]) {
      model.blocks.push_back(original.blocks[i++]);
      continue;
    }
    std::vector<Block> piece;
    CheckpointingOptions options;
    for (; i < original.blocks.size() && recomputed[i] && static_cast<int64_t>(piece.size()) < every; ++i) {
      piece.push_back(original.blocks[i]);
      for (const auto& b : buffers_of_block(original, original.blocks[i])) options.buffers.push_back(b);
    }
    const std::string name = piece.size() == 1 ? piece.front().name : piece.front().name + "..." + piece.back().name;
    const auto run = [piece = std::move(piece)](const ForwardContext& context, const at::Tensor& input) {
      at::Tensor x = input;
      for (const auto& block : piece) x = block.forward(context, x);
      return x;
    };
    model.blocks.push_back({name, [run, options = std::move(options)](const ForwardContext& context, const at::Tensor& x) {
                              return checkpoint([run, context](const at::Tensor& t) { return run(context, t); }, x, options);
                            }});
  }
  return chain_blocks(std::move(model));
}

}  // namespace npu_train
