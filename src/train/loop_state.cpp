#include <algorithm>
#include <set>

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <torch/version.h>

#include "loop_impl.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/device/random.hpp"

namespace npu_train {
namespace {

constexpr const char* kLoopState = "Checkpoint";

/// The tensors of the model as they are saved: fp32 masters where there are any, so that a checkpoint fits every precision.
std::vector<NamedTensor> model_tensors(const LoopParts& parts) {
  std::vector<NamedTensor> out;
  for (const auto& p : parts.task->parameters()) {
    const auto* master = parts.optimizer->parameters().find(p.name);
    out.emplace_back(p.name, (master != nullptr ? master->value : p.value).detach());
  }
  for (const auto& b : parts.task->buffers()) out.push_back(b);
  return out;
}

/// The saved tensor of that name or alias; nullptr where there is none.
const at::Tensor* saved_tensor(const State& saved, const std::string& name) {
  const auto alias = saved.values.find(kAliasKey + name);
  const auto found = saved.tensors.find(alias == saved.values.end() ? name : saved.text(kAliasKey + name, "model"));
  return found == saved.tensors.end() ? nullptr : &found->second;
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

RunState TrainLoop::state() const {
  RunState s;
  for (const auto& [name, tensor] : model_tensors(parts_)) s["model"].tensors.emplace(name, tensor);
  const auto parameters = parts_.task->parameters();
  for (const auto& [alias, name] : parameters.aliases()) s["model"].values[kAliasKey + alias] = name;
  s["optimizer"] = parts_.optimizer->state();
  s["scaler"] = parts_.precision->state();
  if (parts_.ema != nullptr) s["ema"] = parts_.ema->state();
  s["rng"] = rng_state();
  s["loader"] = parts_.train_loader != nullptr ? parts_.train_loader->state() : State{};
  s["loader"].values["batch_in_epoch"] = batch_in_epoch_;
  if (batch_in_epoch_ == 0) s["loader"].values["cursor"] = int64_t{0};  // the next epoch starts afresh, with whatever batch size
  auto& v = s["loop"].values;
  v["epoch"] = epoch_;
  v["global_step"] = global_step_;
  v["batches_seen"] = batches_seen_;
  v["attempts"] = step_->attempts();
  v["skipped"] = skipped_;
  v["validated_step"] = validated_step_;
  v["skip_streak"] = skip_streak_;
  v["rollbacks"] = rollbacks_;
  v["lr_factor"] = lr_factor_;
  if (!trained_at_start_.empty()) v["trained"] = trained_names();
  v["micro_batch_limit"] = micro_batch_limit_;
  v["best_score"] = best_score_;
  v["without_improvement"] = without_improvement_;
  v["early_best"] = early_best_;
  for (const auto& [name, meter] : sums_->metrics.meters()) {
    v["epoch/sum/" + name] = meter.sum();
    v["epoch/weight/" + name] = meter.weight();
  }
  v["epoch/samples"] = sums_->samples;
  v["epoch/skipped"] = sums_->skipped;
  v["epoch/seconds"] = sums_->seconds;
  v["epoch/data_wait"] = sums_->data_wait;
  return s;
}

void TrainLoop::load_state(const RunState& state, const std::vector<std::string>& leave_out) {
  const auto load = [&](const std::string& part, auto&& fn) {
    if (std::find(leave_out.begin(), leave_out.end(), part) != leave_out.end()) return;
    const auto found = state.find(part);
    check(found != state.end(), ErrorKind::Checkpoint, kLoopState, "the checkpoint has no part '", part, "'; hint: it was made without it");
    fn(found->second);
  };
  load("loop", [&](const State& s) {  // first: the other parts are of these parameters
    const auto trained = s.values.find("trained");
    if (trained != s.values.end() || !trained_at_start_.empty())
      train_only(trained != s.values.end() ? s.text("trained", "loop") : trained_at_start_);
  });
  load("model", [&](const State& s) { load_model(parts_, s); });
  load("optimizer", [&](const State& s) { parts_.optimizer->load_state(s); });
  load("scaler", [&](const State& s) { parts_.precision->load_state(s); });
  if (parts_.ema != nullptr) load("ema", [&](const State& s) { parts_.ema->load_state(s); });
  load("rng", [&](const State& s) { set_rng_state(s); });
  if (parts_.train_loader != nullptr)
    load("loader", [&](const State& s) {
      parts_.train_loader->load_state(s);
      batch_in_epoch_ = s.integer("batch_in_epoch", "loader");
    });
  load("loop", [&](const State& s) {
    epoch_ = s.integer("epoch", "loop");
    global_step_ = s.integer("global_step", "loop");
    batches_seen_ = s.integer("batches_seen", "loop");
    step_->set_attempts(s.integer("attempts", "loop"));
    skipped_ = s.integer("skipped", "loop");
    skip_streak_ = s.integer("skip_streak", "loop");
    rollbacks_ = s.integer("rollbacks", "loop");
    lr_factor_ = s.number("lr_factor", "loop");
    const auto newer = [&](const char* key, int64_t otherwise) {  // not in checkpoints of older versions
      return s.values.count(key) > 0 ? s.integer(key, "loop") : otherwise;
    };
    micro_batch_limit_ = newer("micro_batch_limit", 0);
    validated_step_ = newer("validated_step", -1);
    best_score_ = s.number("best_score", "loop");
    without_improvement_ = s.integer("without_improvement", "loop");
    early_best_ = s.number("early_best", "loop");
    *sums_ = {};
    auto names = parts_.task->metric_names();
    names.insert(names.begin(), "loss");  // in the order of reports
    for (const auto& name : names)
      if (const auto key = "epoch/sum/" + name; s.values.count(key) > 0)
        sums_->metrics.restore(name, s.number(key, "loop"), s.number("epoch/weight/" + name, "loop"));
    sums_->samples = s.integer("epoch/samples", "loop");
    sums_->skipped = s.integer("epoch/skipped", "loop");
    sums_->seconds = s.number("epoch/seconds", "loop");
    sums_->data_wait = s.number("epoch/data_wait", "loop");
  });
  epoch_open_ = false;
  saved_at_ = batches_seen_;
  pending_.reset();
}

CheckpointMeta TrainLoop::meta() const {
  CheckpointMeta m;
  m.epoch = epoch_;
  m.global_step = global_step_;
  m.batches_seen = batches_seen_;
  m.score = last_score_;
  m.monitor = checkpoint_.monitor;
  m.model = parts_.model_name;
  m.library = NPU_TRAIN_VERSION;
  m.torch = TORCH_VERSION;
  m.threads = at::get_num_threads();
  m.cpu = at::get_cpu_capability();
  m.device = parts_.device.str();
  m.precision = parts_.precision->name();
  m.classes = parts_.classes;
  m.config_digest = hex64(hash64(to_yaml(parts_.config)));
  return m;
}

}  // namespace npu_train
