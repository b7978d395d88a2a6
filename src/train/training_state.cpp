#include "train/training_state.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <torch/version.h>

#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/device/random.hpp"
#include "train/rank_generators.hpp"

namespace npu_train::detail {
namespace {

constexpr const char* kLoopState = "Checkpoint";
constexpr const char* kCompression = "compression";  // the part of the strategy's own state

/// The tensors of the model as they are saved: fp32 master weights if there are any, so that a checkpoint fits every precision.
std::vector<NamedTensor> model_tensors(const LoopParts& parts) {
  std::vector<NamedTensor> out;
  for (const auto& p : parts.task->parameters()) {
    const auto* master = parts.optimizer->parameters().find(p.name);
    out.emplace_back(p.name, (master != nullptr ? master->whole() : p.value).detach());
  }
  for (const auto& b : parts.task->buffers()) out.push_back(b);
  return out;
}

/// The saved tensor with that name or alias; nullptr if there is none.
const at::Tensor* saved_tensor(const State& saved, const std::string& name) {
  const auto alias = saved.values.find(kAliasKey + name);
  const auto found = saved.tensors.find(alias == saved.values.end() ? name : saved.text(kAliasKey + name, "model"));
  return found == saved.tensors.end() ? nullptr : &found->second;
}

/// The slices in a state whose tensors are named "<kind>/<parameter>", by kind: each has one of every parameter. Numbers and buffers of the
/// model are no slices.
std::map<std::string, std::vector<at::Tensor>> slices_of(const State& state, const ParameterSet& parameters) {
  std::set<std::string> kinds;
  for (const auto& entry : state.tensors) kinds.insert(entry.first.substr(0, entry.first.find('/')));
  std::map<std::string, std::vector<at::Tensor>> out;
  for (const auto& kind : kinds) {
    std::vector<at::Tensor> slices;
    for (const auto& p : parameters) {
      const auto found = state.tensors.find(kind + "/" + p.name);
      if (found != state.tensors.end() && found->second.dim() == 1 && p.is_slice()) slices.push_back(found->second);
    }
    if (slices.size() == parameters.size()) out.emplace(kind, std::move(slices));
  }
  return out;
}

/// The state with its slices put together in host memory. Every rank makes the call.
State whole_state(State state, const ParameterSet& parameters, Strategy& strategy) {
  for (const auto& [kind, slices] : slices_of(state, parameters)) {
    std::vector<at::Tensor> whole;
    for (size_t i = 0; i < slices.size(); ++i)
      whole.push_back(at::empty_like(parameters[i].whole().detach(), slices[i].options().device(at::kCPU)));
    strategy.gather_slices(slices, whole);
    for (size_t i = 0; i < whole.size(); ++i) state.tensors[kind + "/" + parameters[i].name] = whole[i];
  }
  return state;
}

/// The state without its slices, which go to `out`.
State without_slices(State state, const ParameterSet& parameters, std::map<std::string, TensorSlice>& out) {
  for (const auto& [kind, slices] : slices_of(state, parameters))
    for (size_t i = 0; i < slices.size(); ++i) {
      const auto& p = parameters[i];
      const auto name = kind + "/" + p.name;
      out[name] = {.value = slices[i], .begin = p.begin, .sizes = p.whole().sizes().vec(), .strides = p.whole().strides().vec()};
      state.tensors.erase(name);
    }
  return state;
}

TensorSlice slice_of(const Parameter& p) {
  return {.value = p.value.detach(), .begin = p.begin, .sizes = p.whole().sizes().vec(), .strides = p.whole().strides().vec()};
}

/// The state of the strategy. Without `slices` that of this rank alone.
void save_carried(const Strategy& strategy, StateSlices* slices, RunState& out) {
  if (!strategy.carries_state()) return;
  auto carried = strategy.carried();
  auto& part = out[kCompression] = std::move(carried.shared);
  for (const auto& p : carried.slices) {
    if (slices != nullptr)
      (*slices)[kCompression]["error/" + p.name] = slice_of(p);
    else
      part.tensors["error/" + p.name] = p.value.detach();
  }
  if (slices == nullptr) part.values["of_rank"] = int64_t{strategy.rank()};
}

void load_carried(Strategy& strategy, const SavedParts& saved) {
  const State none;
  const auto* found = saved.has(kCompression) ? saved.find(kCompression) : &none;
  if (found == nullptr) return;
  const auto of_rank = found->values.find("of_rank");
  const bool of_another = of_rank != found->values.end() && found->integer("of_rank", kCompression) != strategy.rank();
  strategy.load_carried(of_another ? none : *found);
}

void load_model(const LoopParts& parts, const State& saved) {
  const at::NoGradGuard no_grad;
  const auto own = model_tensors(parts);
  const auto parameters = parts.task->parameters();
  std::string missing, misshapen;
  std::set<std::string> names;
  for (const auto& [name, tensor] : own) {
    names.insert(name);
    const auto* found = saved_tensor(saved, name);
    if (found == nullptr)
      missing = missing.empty() ? name : missing;
    else if (found->sizes() != tensor.sizes())
      misshapen = misshapen.empty() ? c10::str(name, " ", found->sizes(), " instead of ", tensor.sizes()) : misshapen;
  }
  for (const auto& [alias, name] : parameters.aliases()) names.insert(alias);
  const bool known = std::all_of(saved.tensors.begin(), saved.tensors.end(), [&](const auto& t) { return names.count(t.first) != 0; });
  check(missing.empty() && misshapen.empty() && known, ErrorKind::Checkpoint, kLoopState, "the checkpoint is of another model: it has ",
        saved.tensors.size(), " tensors, this model has ", own.size(), missing.empty() ? "" : "; missing: " + missing,
        misshapen.empty() ? "" : "; other shape: " + misshapen,
        "; hint: resume with the configuration it was made with, or load its weights with model.weights");
  for (const auto& [name, tensor] : own) tensor.detach().copy_(*saved_tensor(saved, name));
  for (const auto& p : parameters) p.value.detach().copy_(*saved_tensor(saved, p.name));
}

}  // namespace

const State* SavedParts::find(const std::string& part) const {
  if (std::find(leave_out_.begin(), leave_out_.end(), part) != leave_out_.end()) return nullptr;
  const auto found = state_.find(part);
  check(found != state_.end(), ErrorKind::Checkpoint, kLoopState, "the checkpoint has no part '", part, "'; hint: it was made without it");
  return &found->second;
}

void save_training(const LoopParts& parts, const LoopPosition& position, StateSlices* slices, RunState& out) {
  for (const auto& [name, tensor] : model_tensors(parts)) out["model"].tensors.emplace(name, tensor);
  const auto parameters = parts.task->parameters();
  for (const auto& [alias, name] : parameters.aliases()) out["model"].values[kAliasKey + alias] = name;
  const auto divide = [&](const char* part, State state, const ParameterSet& of) {
    if (!parts.strategy->shards()) return state;
    return slices == nullptr ? whole_state(std::move(state), of, *parts.strategy) : without_slices(std::move(state), of, (*slices)[part]);
  };
  out["optimizer"] = divide("optimizer", parts.optimizer->state(), parts.optimizer->parameters());
  out["scaler"] = parts.precision->state();
  save_carried(*parts.strategy, slices, out);
  if (parts.ema != nullptr) out["ema"] = divide("ema", parts.ema->state(), parts.ema->averages());
  out["rng"] = rng_state();
  out["loader"] = parts.train_loader != nullptr ? parts.train_loader->state() : State{};
  out["loader"].values["batch_in_epoch"] = position.batch_in_epoch;
  if (position.batch_in_epoch == 0) out["loader"].values["cursor"] = int64_t{0};  // the next epoch starts afresh, with whatever batch size
  auto& loop = out["loop"].values;
  loop["epoch"] = position.epoch;
  loop["global_step"] = position.global_step;
  loop["batches_seen"] = position.batches_seen;
  loop["skipped"] = position.skipped;
  loop["validated_step"] = position.validated_step;
}

void load_training(const LoopParts& parts, LoopPosition& position, const SavedParts& saved) {
  const auto load = [&](const char* part, auto&& fn) {
    if (const auto* found = saved.find(part)) fn(*found);
  };
  load("model", [&](const State& s) { load_model(parts, s); });
  load("optimizer", [&](const State& s) { parts.optimizer->load_state(s); });
  load("scaler", [&](const State& s) { parts.precision->load_state(s); });
  if (parts.ema != nullptr) load("ema", [&](const State& s) { parts.ema->load_state(s); });
  load_carried(*parts.strategy, saved);
  load("rng", [&](const State& s) { set_generators_of_rank(*parts.strategy, s); });
  if (parts.train_loader != nullptr)
    load("loader", [&](const State& s) {
      parts.train_loader->load_state(s);
      position.batch_in_epoch = s.integer("batch_in_epoch", "loader");
    });
  load("loop", [&](const State& s) {
    position.epoch = s.integer("epoch", "loop");
    position.global_step = s.integer("global_step", "loop");
    position.batches_seen = s.integer("batches_seen", "loop");
    position.skipped = s.integer("skipped", "loop");
    position.validated_step = s.values.count("validated_step") > 0 ? s.integer("validated_step", "loop") : -1;  // older ones have none
  });
}

CheckpointMeta checkpoint_meta(const LoopParts& parts, const LoopPosition& position) {
  CheckpointMeta m;
  m.epoch = position.epoch;
  m.global_step = position.global_step;
  m.batches_seen = position.batches_seen;
  m.model = parts.model_name;
  m.library = NPU_TRAIN_VERSION;
  m.torch = TORCH_VERSION;
  m.threads = at::get_num_threads();
  m.cpu = at::get_cpu_capability();
  m.device = parts.device.str();
  m.precision = parts.precision->name();
  m.classes = parts.classes;
  m.config_digest = hex64(hash64(to_yaml(parts.config)));
  return m;
}

}  // namespace npu_train::detail
