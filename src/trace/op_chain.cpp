#include "npu_train/trace/op_chain.hpp"

#include <algorithm>
#include <unordered_map>

#include "npu_train/base/storage.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/trace/op_graph.hpp"
#include "npu_train/trace/op_mode.hpp"

namespace npu_train::detail {
namespace {

bool is_number(const GraphOp& op, size_t i) {
  return op.args[i].isScalar() || (op.tensor(i) && op.args[i].toTensor().dim() == 0 && op.args[i].toTensor().is_cpu());
}
bool same_sizes(const GraphOp& op) {
  return op.tensor(0) && op.tensor(1) && op.args[0].toTensor().sizes().equals(op.args[1].toTensor().sizes()) &&
         op.args[0].toTensor().scalar_type() == op.args[1].toTensor().scalar_type();
}
bool is_one(const c10::IValue& v) { return v.isScalar() && v.toScalar().toDouble() == 1; }

// Determines which operators may follow in a chain.
class Grammar {
 public:
  explicit Grammar(const ParameterSet& parameters) {
    for (const auto& p : parameters) names_.emplace(storage_of(p.value), p.name);
  }

  // Starts a chain if `op` can be its first step. A weight must be a floating-point parameter; attention has none.
  bool begins(const GraphOp& op, OpChain& chain) const {
    const auto name = op.name();
    const auto begin = [&](ChainKind kind, size_t weight, std::vector<size_t> open, const char* pattern) {
      chain.kind = kind;
      chain.pattern = pattern;
      if (kind != ChainKind::Attention) {
        if (!op.tensor(weight)) return false;
        chain.weight = op.args[weight].toTensor();
        const auto found = names_.find(storage_of(chain.weight));
        if (found == names_.end() || !chain.weight.is_floating_point()) return false;
        chain.layer = layer_of(found->second).empty() ? found->second : layer_of(found->second);
      } else {
        chain.layer = str_cat("attention ", op.args[0].toTensor().sizes());
      }
      chain.steps.push_back({op.op, op.args, std::move(open), -1});
      return true;
    };
    if (name == "conv2d" && op.op.schema().overload_name().empty()) return begin(ChainKind::Conv, 1, {0}, "Conv2d");
    if (name == "linear") return begin(ChainKind::Linear, 1, {0}, "Linear");
    if (name == "addmm" && is_one(op.args[3]) && is_one(op.args[4]) && op.args[0].toTensor().dim() == 1)
      return begin(ChainKind::Linear, 2, {1}, "Linear");
    if (name == "layer_norm") return begin(ChainKind::LayerNorm, 2, {0}, "LayerNorm");
    if (name != "matmul" && name != "bmm") return false;
    const auto& right = op.args[1].toTensor();
    if (right.dim() == 2) return begin(ChainKind::Linear, 1, {0}, "Linear");
    const auto& left = op.args[0].toTensor();
    return left.dim() == right.dim() && left.dim() >= 3 && begin(ChainKind::Attention, 0, {0, 1}, "Attention");
  }

  // Appends `op` to `chain` if it can follow.
  bool goes_on(OpChain& chain, const GraphOp& op, int flow) const {
    const auto name = op.name();
    const auto step = [&](const char* pattern, std::vector<size_t> open = {}) {
      open.push_back(static_cast<size_t>(flow));
      chain.steps.push_back({op.op, op.args, std::move(open), flow});
      chain.pattern += pattern;
      return true;
    };
    const bool activated = chain.find("relu") != nullptr || chain.find("gelu") != nullptr;
    if (chain.kind == ChainKind::Attention) return attention_goes_on(chain, op, name, flow);
    if (activated || (flow != 0 && name != "add")) return false;
    if (name == "relu" && chain.kind != ChainKind::LayerNorm) return step("+ReLU");
    if (name == "gelu" && chain.kind != ChainKind::Conv) return step("+GELU");
    if (name == "add" && op.args.size() == 3 && is_one(op.args[2]) && op.tensor(0) && op.tensor(1)) {
      if (chain.find("add") != nullptr) return false;
      if (chain.kind == ChainKind::Conv && same_sizes(op) && !in_place_of_other(op, flow))
        return step("+Add", {static_cast<size_t>(1 - flow)});
      const auto& other = op.args[static_cast<size_t>(1 - flow)].toTensor();
      return chain.kind == ChainKind::Linear && chain.steps[0].name() == "aten::matmul" && other.dim() == 1 &&
             other.size(0) == chain.weight.size(1) && names_.count(storage_of(other)) > 0 && step("");
    }
    return name == "batch_norm" && chain.kind == ChainKind::Conv && chain.steps.size() == 1 && !op.args[5].toBool() && op.tensor(3) &&
           op.tensor(4) && step("+BatchNorm");
  }

 private:
  static bool in_place_of_other(const GraphOp& op, int flow) { return flow == 1 && op.op.schema().name().ends_with('_'); }

  bool attention_goes_on(OpChain& chain, const GraphOp& op, const std::string& name, int flow) const {
    const bool softened = chain.find("softmax") != nullptr;
    if (flow != 0 || chain.find("matmul") != &chain.steps[0]) return false;
    const auto step = [&](std::vector<size_t> open) {
      chain.steps.push_back({op.op, op.args, std::move(open), 0});
      return true;
    };
    const int64_t last = op.tensor(0) ? op.args[0].toTensor().dim() - 1 : -1;
    if (!softened && (name == "mul" || name == "div") && chain.steps.size() == 1 && op.args.size() == 2 && is_number(op, 1))
      return step({0});
    if (!softened && name == "softmax") return (op.args[1].toInt() == last || op.args[1].toInt() == -1) && op.args[2].isNone() && step({0});
    if (softened && name == "dropout" && !op.args[2].toBool()) return step({0});
    return softened && (name == "matmul" || name == "bmm") && op.tensor(1) && op.args[1].toTensor().dim() == last + 1 && step({0, 1});
  }

  std::unordered_map<const void*, std::string> names_;
};

bool complete(const OpChain& chain) {
  if (chain.kind != ChainKind::Attention) {
    const bool sum_alone = chain.steps.size() == 2 && chain.kind == ChainKind::Linear && chain.find("add") != nullptr;
    return chain.steps.size() > 1 && !sum_alone;
  }
  const auto last = chain.steps.back().name();
  return chain.steps.size() > 2 && (last == "aten::matmul" || last == "aten::bmm");
}

bool same_value(const c10::IValue& recorded, const c10::IValue& given) {
  if (!recorded.isTensor()) return !given.isTensor() && recorded == given;
  if (!given.isTensor() || recorded.toTensor().defined() != given.toTensor().defined()) return false;
  const auto &a = recorded.toTensor(), &b = given.toTensor();
  if (!a.defined()) return true;
  if (storage_of(a) == storage_of(b)) return same_elements(a, b);
  return a.dim() == 0 && b.dim() == 0 && a.is_cpu() && b.is_cpu() && a.item().toDouble() == b.item().toDouble();
}

}  // namespace

bool ChainStep::matches(const c10::OperatorHandle& called, const c10::IValue* given) const {
  if (called.operator_name() != op.operator_name()) return false;
  for (size_t i = 0; i < args.size(); ++i)
    if (std::find(open.begin(), open.end(), i) == open.end() && !same_value(args[i], given[i])) return false;
  return true;
}

const ChainStep* OpChain::find(const std::string& name) const {
  for (const auto& step : steps)
    if (step.name() == "aten::" + name || step.name() == "aten::" + name + "_" || (name == "matmul" && step.name() == "aten::bmm"))
      return &step;
  return nullptr;
}

std::vector<at::Tensor> OpChain::inputs() const {
  std::vector<at::Tensor> out;
  for (const auto& step : steps)
    for (const auto i : step.open)
      if (static_cast<int>(i) != step.flow) out.push_back(step.args[i].toTensor());
  return out;
}

at::Tensor OpChain::plain() const {
  at::Tensor value;
  for (const auto& step : steps) {
    torch::jit::Stack stack = step.args;
    if (step.flow >= 0) stack[static_cast<size_t>(step.flow)] = value;
    call_below(step.op, stack);
    value = stack[0].toTensor();
  }
  return value;
}

std::vector<OpChain> find_chains(const std::function<at::Tensor(const at::Tensor&)>& forward, const at::Tensor& example,
                                 const ParameterSet& parameters) {
  const auto graph = OpGraph::record([&] { return forward(example); });
  const auto& ops = graph.ops();
  const Grammar grammar(parameters);
  std::vector<bool> taken(ops.size(), false);
  std::vector<OpChain> out;
  for (size_t head = ops.size(); head-- > 0;) {  // backward, so that the later one of two added convolutions can include the sum
    OpChain chain;
    if (taken[head] || !grammar.begins(ops[head], chain)) continue;
    std::vector<size_t> members = {head};
    for (;;) {
      const auto reader = graph.only_reader(members.back());
      if (reader < 0 || taken[static_cast<size_t>(reader)] || !ops[static_cast<size_t>(reader)].gives_one()) break;
      const auto flow = graph.position(static_cast<size_t>(reader), members.back());
      if (flow < 0 || !grammar.goes_on(chain, ops[static_cast<size_t>(reader)], flow)) break;
      members.push_back(static_cast<size_t>(reader));
    }
    if (!complete(chain)) continue;
    for (const auto m : members) taken[m] = true;
    out.push_back(std::move(chain));
  }
  std::reverse(out.begin(), out.end());
  for (auto& chain : out) {
    const auto& w = chain.weight;
    chain.only_reader = w.defined() && w.storage().nbytes() == w.nbytes() && graph.readers_of(storage_of(w)) == 1;
  }
  return out;
}

}  // namespace npu_train::detail
