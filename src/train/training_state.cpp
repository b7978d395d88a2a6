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

#include "npu_train/base/has_memory.hpp"
#include "npu_train/base/saved_part.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/dist/offload.hpp"
#include "train/optimizer_parts.hpp"
#include "train/rank_generators.hpp"

namespace npu_train::detail {
namespace {

constexpr const char* kLoopState = "Checkpoint";
constexpr const char* kCompression = "compression";  // name of the part with the strategy's own state

/// Returns whether this rank has only a slice of a master, because the master is sharded.
bool is_apart(const Parameter& p) { return p.is_slice() && p.sliced_from.numel() > 0 && !has_memory(p.sliced_from); }

/// Returns the parameters as this rank saves them: the fp32 masters if there are any, so that a checkpoint fits every precision. They are
/// slices if the masters, or the parameters themselves, are sharded.
ParameterSet saved_parameters(const LoopParts& parts) {
  ParameterSet out;
  const auto updated_ones = all_updated(parts);
  for (const auto& p : *parts.parameters) {
    const auto* updated = updated_ones.find(p.name);
    if (updated == nullptr)
      out.add(p);
    else if (parts.strategy->shards_parameters() || is_apart(*updated))
      out.add(*updated);
    else
      out.add({.name = p.name, .value = updated->whole()});
  }
  return out;
}

State model_state(const LoopParts& parts) {
  State out;
  for (const auto& p : saved_parameters(parts)) out.tensors.emplace(p.name, p.value.detach());
  for (const auto& [name, buffer] : parts.task->buffers()) out.tensors.emplace(name, buffer);
  for (const auto& [alias, name] : parts.parameters->aliases()) out.values[kAliasKey + alias] = name;
  return out;
}

/// Returns the saved tensor with that name or alias; nullptr if there is none.
const at::Tensor* saved_tensor(const State& saved, const std::string& name) {
  const auto alias = saved.values.find(kAliasKey + name);
  const auto found = saved.tensors.find(alias == saved.values.end() ? name : saved.text(kAliasKey + name, "model"));
  return found == saved.tensors.end() ? nullptr : &found->second;
}

/// Returns the name of a parameter's tensor in a state. In the model, which has no kind, this is the name of the parameter.
std::string state_name(const std::string& kind, const Parameter& p) { return kind.empty() ? p.name : kind + "/" + p.name; }

/// Returns the slices in a state, grouped by kind: the tensors named "<kind>/<parameter>". Each kind has a slice of every parameter.
/// Numbers and the model's buffers are not slices.
std::map<std::string, std::vector<at::Tensor>> slices_of(const State& state, const ParameterSet& parameters) {
  std::set<std::string> kinds{""};
  for (const auto& entry : state.tensors) kinds.insert(entry.first.substr(0, entry.first.find('/')));
  std::map<std::string, std::vector<at::Tensor>> out;
  for (const auto& kind : kinds) {
    std::vector<at::Tensor> slices;
    for (const auto& p : parameters) {
      const auto found = state.tensors.find(state_name(kind, p));
      if (found != state.tensors.end() && found->second.dim() == 1 && p.is_slice()) slices.push_back(found->second);
    }
    if (slices.size() == parameters.size()) out.emplace(kind, std::move(slices));
  }
  return out;
}

/// Returns the state with its slices joined in host memory. Every rank must call it.
State whole_state(State state, const ParameterSet& parameters, Strategy& strategy) {
  for (const auto& [kind, slices] : slices_of(state, parameters)) {
    std::vector<at::Tensor> whole;
    for (size_t i = 0; i < slices.size(); ++i)
      whole.push_back(at::empty_like(parameters[i].whole().detach(), slices[i].options().device(at::kCPU)));
    strategy.gather_slices(slices, whole);
    for (size_t i = 0; i < whole.size(); ++i) state.tensors[state_name(kind, parameters[i])] = whole[i];
  }
  return state;
}

/// If only masters are sharded, joins their slices in host memory, on the main rank or, with `everywhere`, on all ranks. Every rank must
/// call it.
void complete_masters(const LoopParts& parts, bool everywhere, State& model) {
  const auto& updated = on_device(*parts.strategy, parts.optimizer->parameters());
  if (std::none_of(updated.begin(), updated.end(), is_apart)) return;
  std::vector<at::Tensor> whole(updated.size());
  for (size_t i = 0; i < updated.size(); ++i) {
    if (!is_apart(updated[i])) continue;
    model.tensors.erase(updated[i].name);
    if (!everywhere && !parts.strategy->ranks().is_main()) continue;
    whole[i] = at::empty_like(updated[i].whole().detach(), updated[i].value.options().device(at::kCPU).requires_grad(false));
    model.tensors.emplace(updated[i].name, whole[i]);
  }
  parts.strategy->gather_slices(updated.values(), whole);
}

/// Moves the slices of a state to `out` and returns the rest.
State without_slices(State state, const ParameterSet& parameters, std::map<std::string, TensorSlice>& out) {
  for (const auto& [kind, slices] : slices_of(state, parameters))
    for (size_t i = 0; i < slices.size(); ++i) {
      const auto& p = parameters[i];
      const auto name = state_name(kind, p);
      out[name] = {.value = slices[i], .begin = p.begin, .sizes = p.whole().sizes().vec(), .strides = p.whole().strides().vec()};
      state.tensors.erase(name);
    }
  return state;
}

TensorSlice slice_of(const Parameter& p) {
  return {.value = p.value.detach(), .begin = p.begin, .sizes = p.whole().sizes().vec(), .strides = p.whole().strides().vec()};
}

/// Saves the strategy's error feedback. Without `slices`, saves only the errors of this rank, together with its number.
void save_compression_state(Strategy& strategy, StateSlices* slices, RunState& out) {
  const auto* errors = strategy.error_feedback();
  if (errors == nullptr) return;
  auto state = errors->state();
  auto& part = out[kCompression] = std::move(state.shared);
  for (const auto& p : state.slices) {
    if (slices != nullptr)
      (*slices)[kCompression]["error/" + p.name] = slice_of(p);
    else
      part.tensors["error/" + p.name] = p.value.detach();
  }
  if (slices == nullptr) part.values["of_rank"] = int64_t{strategy.ranks().rank()};
}

void load_compression_state(Strategy& strategy, const SavedParts& saved) {
  const State none;
  const auto* found = saved.has(kCompression) ? saved.find(kCompression) : &none;
  if (found == nullptr) return;
  const auto of_rank = found->values.find("of_rank");
  const bool of_another = of_rank != found->values.end() && found->integer("of_rank", kCompression) != strategy.ranks().rank();
  const auto& state = of_another ? none : *found;
  if (auto* errors = strategy.error_feedback())
    errors->load(state);
  else if (!state.empty() && strategy.ranks().is_main())
    log_info("the checkpoint has errors of compressed gradients; this run compresses none, so they are dropped");
}

void load_model(const LoopParts& parts, const State& saved) {
  const at::NoGradGuard no_grad;
  const auto& parameters = *parts.parameters;
  std::string missing, misshapen;
  std::set<std::string> names;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // to, from
  const auto load = [&](const Parameter& p) {
    names.insert(p.name);
    const auto* found = saved_tensor(saved, p.name);
    const auto part = found != nullptr ? saved_part(p, *found) : at::Tensor();
    if (found == nullptr)
      missing = missing.empty() ? p.name : missing;
    else if (!part.defined() || part.sizes() != p.value.sizes())
      misshapen = misshapen.empty() ? str_cat(p.name, " ", found->sizes(), " instead of ", p.whole().sizes()) : misshapen;
    copies.emplace_back(p.value.detach(), part);
  };
  for (const auto& p : saved_parameters(parts)) load(p);
  if (!parts.strategy->shards_parameters())
    for (const auto& p : parameters) load(p);  // also loads the low-precision parameters next to their masters
  for (const auto& [name, buffer] : parts.task->buffers()) load({.name = name, .value = buffer});
  for (const auto& [alias, name] : parameters.aliases()) names.insert(alias);
  const bool known = std::all_of(saved.tensors.begin(), saved.tensors.end(), [&](const auto& t) { return names.count(t.first) != 0; });
  check(missing.empty() && misshapen.empty() && known, ErrorKind::Checkpoint, kLoopState, "the checkpoint is of another model: it has ",
        saved.tensors.size(), " tensors, this model has ", parameters.size() + parts.task->buffers().size(),
        missing.empty() ? "" : "; missing: " + missing, misshapen.empty() ? "" : "; other shape: " + misshapen,
        "; hint: resume with the configuration it was made with, or load its weights with model.weights");
  for (auto& [to, from] : copies) to.copy_(from);
}

}  // namespace

const State* SavedParts::find(const std::string& part) const {
  const auto kind = part.substr(0, part.find('.'));  // "optimizer" leaves out each "optimizer.NAME"
  if (std::any_of(leave_out_.begin(), leave_out_.end(), [&](const auto& out) { return out == part || out == kind; })) return nullptr;
  const auto found = state_.find(part);
  check(found != state_.end(), ErrorKind::Checkpoint, kLoopState, "the checkpoint has no part '", part, "'; hint: it was made without it");
  return &found->second;
}

void save_training(const LoopParts& parts, const LoopPosition& position, StateSlices* slices, RunState& out) {
  const auto divide = [&](const std::string& part, State state, const ParameterSet& of) {
    if (!parts.strategy->shards()) return state;
    return slices == nullptr ? whole_state(std::move(state), of, *parts.strategy) : without_slices(std::move(state), of, (*slices)[part]);
  };
  out["model"] = model_state(parts);
  if (parts.strategy->shards_parameters())
    out["model"] = divide("model", std::move(out["model"]), parts.optimizer->parameters());
  else
    complete_masters(parts, /*everywhere=*/slices == nullptr, out["model"]);
  for (const auto& one : parts.optimizers) {
    const auto part = part_of("optimizer", one);
    out[part] = divide(part, one.optimizer->state(), one.optimizer->parameters());
    out[part_of("scaler", one)] = one.precision->state();
  }
  save_compression_state(*parts.strategy, slices, out);
  if (parts.average != nullptr && (parts.average->follows_steps() || parts.average->updates() > 0))
    out["ema"] = divide("ema", parts.average->state(), parts.average->averages());
  if (slices != nullptr && !parts.strategy->writes_slices()) slices->clear();
  out["rng"] = rng_state();
  out["loader"] = parts.train_loader != nullptr ? parts.train_loader->state() : State{};
  out["loader"].values["batch_in_epoch"] = position.batch_in_epoch;
  if (position.batch_in_epoch == 0) out["loader"].values["cursor"] = int64_t{0};  // the next epoch starts afresh, with any batch size
  auto& loop = out["loop"].values;
  loop["epoch"] = position.epoch;
  loop["global_step"] = position.global_step;
  loop["batches_seen"] = position.batches_seen;
  loop["skipped"] = position.skipped;
  loop["validated_step"] = position.validated_step;
  if (position.validated_batch >= 0) loop["validated_batch"] = position.validated_batch;
  loop["effective_batch"] = position.effective_batch;
}

static void warn_of_other_batch(const LoopParts& parts, int64_t before, int64_t now) {
  if (before == 0 || now == 0 || before == now || !parts.strategy->ranks().is_main()) return;
  log_warning(
      "the checkpoint was trained with an effective batch of ", before, " samples, and this run has ", now,
      ", for which the learning rate may not be right; hint: trainer.accumulate_grad_batches changes it where the number of ranks has "
      "changed");
}

void load_training(const LoopParts& parts, LoopPosition& position, const SavedParts& saved) {
  const auto load = [&](const std::string& part, auto&& fn) {
    if (const auto* found = saved.find(part)) fn(*found);
  };
  load("model", [&](const State& s) {
    load_model(parts, s);
    for (const auto& one : parts.optimizers) one.strategy->parameters_loaded();
  });
  for (const auto& one : parts.optimizers) {
    load(part_of("optimizer", one), [&](const State& s) { one.optimizer->load_state(s); });
    load(part_of("scaler", one), [&](const State& s) { one.precision->load_state(s); });
  }
  if (parts.average != nullptr && !parts.average->follows_steps() && !saved.has("ema"))
    parts.average->reset();  // the checkpoint was written before the first update
  else if (parts.average != nullptr) {
    check(saved.has("ema"), ErrorKind::Checkpoint, kLoopState,
          "the checkpoint has no averages of weights, and average.kind=ema continues some; hint: average.enabled=false, or begin a new run "
          "with "
          "its weights (model.weights)");
    load("ema", [&](const State& s) { parts.average->load_state(s); });
  } else if (saved.has("ema") && parts.strategy->ranks().is_main())
    log_warning("the checkpoint has averages of weights; this run makes none (average.enabled), so they are dropped");
  load_compression_state(*parts.strategy, saved);
  load("rng", [&](const State& s) { set_generators_of_rank(parts.strategy->ranks(), s); });
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
    const auto if_there = [&s](const char* key) { return s.values.count(key) > 0 ? s.integer(key, "loop") : -1; };  // older files have none
    position.validated_step = if_there("validated_step");
    position.validated_batch = if_there("validated_batch");
    warn_of_other_batch(parts, std::max<int64_t>(0, if_there("effective_batch")), position.effective_batch);
  });
}

ParameterSet weights_in(const std::string& path, const LoopParts& parts) {
  const auto& updated = averaged_optimizer(parts).optimizer->parameters();
  const auto state = load_checkpoint(path, {"model"}, {}, parts.strategy->shards_parameters() ? updated : ParameterSet());
  ParameterSet out;
  for (auto p : updated) {
    const auto* found = saved_tensor(state.at("model"), p.name);
    const auto part = found != nullptr ? saved_part(p, *found) : at::Tensor();
    check(part.defined(), ErrorKind::Checkpoint, kLoopState, path, " has no ", p.name, " of the shape ", p.whole().sizes(),
          ", so it cannot be averaged");
    p.value = part.to(p.value.device());
    out.add(std::move(p));
  }
  return out;
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
