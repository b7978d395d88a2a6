#include "npu_train/engine/torch_checkpoint.hpp"

#include <ATen/ops/empty_like.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>

#include "engine/joined_projections.hpp"
#include "engine/saved_weights.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/io/pth_writer.hpp"
#include "npu_train/models/lora.hpp"
#include "npu_train/models/torchscript.hpp"
#include "npu_train/models/weights.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/optim/optimizers.hpp"
#include "npu_train/train/checkpoint_store.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhere = "torch checkpoint";
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::string checkpoint_of(const std::string& from) {
  for (const auto* best : {"checkpoints/best", "best"})
    if (fs::exists(fs::path(from) / best / "manifest.json")) return find_checkpoint((fs::path(from) / best).string());
  return find_checkpoint(from);
}

// ---- history ----

struct Epoch {
  double train_loss, train_acc, val_loss, val_acc, lr;
};

double number_at(const Json& row, const char* section, const char* name, const std::string& where) {
  const auto* numbers = row.find(section);
  const auto* value = numbers == nullptr ? nullptr : numbers->find(name);
  return value == nullptr ? kNone : value->number(where);
}

// Returns the first `epochs` epochs of the run that contains the checkpoint; nullopt outside of a run.
std::optional<std::vector<Epoch>> history_of(const std::string& checkpoint, int64_t epochs) {
  const auto file = fs::weakly_canonical(checkpoint).parent_path().parent_path() / "history.json";
  if (!fs::exists(file)) return std::nullopt;
  const auto where = file.string();
  std::vector<Epoch> out;
  try {
    const auto document = load_json(file);
    for (const auto& row : document.at("epochs", where).items(where)) {
      if (static_cast<int64_t>(out.size()) == epochs) break;
      out.push_back({number_at(row, "train", "loss", where), number_at(row, "train", "acc1", where), number_at(row, "val", "loss", where),
                     number_at(row, "val", "acc1", where), row.at("lr", where).number(where)});
    }
  } catch (const Error& e) {
    throw Error(ErrorKind::Checkpoint, kWhere, where + ": " + e.what(), "", std::current_exception());
  }
  return out;
}

PthValue history_dict(const std::vector<Epoch>& history) {
  auto out = PthValue::dict();
  for (const auto& [name, member] : {std::pair{"train_loss", &Epoch::train_loss},
                                     {"train_acc", &Epoch::train_acc},
                                     {"val_loss", &Epoch::val_loss},
                                     {"val_acc", &Epoch::val_acc}}) {
    auto list = PthValue::list();
    for (const auto& epoch : history) list.append(epoch.*member);
    out.set(name, std::move(list));
  }
  return out;
}

// Returns the validation accuracy of these weights; None unless the run validated this set of weights after the last step of epoch `epoch`.
PthValue accuracy_of(const detail::SavedWeights& weights, const std::optional<std::vector<Epoch>>& history, const std::string& checkpoint,
                     int64_t epoch) {
  if (!history || history->empty() || static_cast<int64_t>(history->size()) != epoch || std::isnan(history->back().val_acc)) return {};
  const auto loop = load_checkpoint(checkpoint, {"loop"}).at("loop");
  const bool validated = loop.values.count("validated_step") != 0 &&
                         loop.integer("validated_step", "loop") == loop.integer("global_step", "loop") &&
                         weights.averages == weights.has_averages;
  return validated ? PthValue(history->back().val_acc) : PthValue();
}

// ---- optimizer ----

// Names in torch.optim for our optimizer's state, and the options of its groups.
struct TorchOptimizer {
  std::vector<std::pair<std::string, std::string>> slots;  // name here, name in torch.optim
  PthValue options = PthValue::dict();
  double weight_decay = 0;
};

template <class Options>
TorchOptimizer torch_adam(const ConfigNode& node, bool decoupled) {
  const auto o = bind<detail::WithGroups<Options>>(node, "optimizer");
  TorchOptimizer out;
  out.slots = {{"exp_avg", "exp_avg"}, {"exp_avg_sq", "exp_avg_sq"}, {"step", "step"}};
  if (o.amsgrad) out.slots.emplace_back("max_exp_avg_sq", "max_exp_avg_sq");
  out.weight_decay = o.weight_decay;
  out.options.set("betas", PthValue::tuple({o.betas[0], o.betas[1]})).set("eps", o.eps).set("amsgrad", o.amsgrad).set("capturable", false);
  out.options.set("decoupled_weight_decay", decoupled).set("maximize", o.maximize);
  return out;
}

TorchOptimizer torch_optimizer(const PartConfig& config) {
  TorchOptimizer out;
  if (config.name == "sgd") {
    const auto o = bind<detail::WithGroups<SgdOptions>>(config.options, "optimizer");
    out.weight_decay = o.weight_decay;
    if (o.momentum > 0) out.slots = {{"momentum", "momentum_buffer"}};
    out.options.set("momentum", o.momentum).set("dampening", o.dampening).set("nesterov", o.nesterov).set("maximize", o.maximize);
  } else if (config.name == "adam") {
    out = torch_adam<AdamOptions>(config.options, false);
  } else if (config.name == "adamw") {
    out = torch_adam<AdamWOptions>(config.options, true);
  } else {
    throw Error(ErrorKind::Usage, kWhere,
                "the state of the optimizer '" + config.name + "' cannot be written for torch.optim; supported: sgd, adam, adamw");
  }
  out.options.set("differentiable", false).set("foreach", {}).set("fused", {});
  return out;
}

// Returns copies of the parameters that occupy no memory; an optimizer can make its groups from them.
ParameterSet on_meta(const ParameterSet& parameters) {
  ParameterSet out;
  for (const auto& p : parameters)
    out.add({.name = p.name,
             .value = at::empty_like(p.value, p.value.options().device(at::kMeta).requires_grad(false)).set_requires_grad(true)});
  return out;
}

// Returns state and groups in the order in which the model registered its parameters, as Python's `model.parameters()`. `lr` is the rate at
// the checkpoint.
PthValue optimizer_dict(const TorchOptimizer& theirs, const Optimizer& ours, const State& saved, double lr) {
  auto state = PthValue::dict(), groups = PthValue::list();
  int64_t index = 0;
  for (size_t g = 0; g < ours.groups().size(); ++g) {
    const auto& group = ours.groups()[g];
    auto members = PthValue::list();
    for (const auto& p : ours.parameters()) {
      if (p.group != static_cast<int>(g)) continue;
      auto of_parameter = PthValue::dict();
      for (const auto& [our_name, their_name] : theirs.slots)
        if (const auto found = saved.tensors.find(our_name + "/" + p.name); found != saved.tensors.end())
          of_parameter.set(their_name, found->second);
      if (!of_parameter.items().empty()) state.set(index, std::move(of_parameter));
      members.append(index++);
    }
    if (members.items().empty()) continue;
    auto options = theirs.options;
    options.set("lr", lr * group.lr_mult).set("initial_lr", ours.lr() * group.lr_mult);
    options.set("weight_decay", group.decay_mult * (group.weight_decay >= 0 ? group.weight_decay : theirs.weight_decay));
    options.set("params", std::move(members));
    groups.append(std::move(options));
  }
  auto out = PthValue::dict();
  return out.set("state", std::move(state)).set("param_groups", std::move(groups));
}

}  // namespace

TorchCheckpointFiles save_torch_checkpoint(const std::string& from, const std::string& folder, const std::vector<std::string>& overrides,
                                           const Parts& parts, WeightSet set) {
  const auto checkpoint = checkpoint_of(from);
  const auto config = detail::config_without_training(checkpoint, overrides, parts);
  const auto optimizer = torch_optimizer(config.optimizer);
  const auto saved = detail::saved_weights(checkpoint, set);
  const auto state = load_checkpoint(checkpoint, {"optimizer"});
  const auto epoch = read_checkpoint_meta(checkpoint).epoch;
  const auto history = history_of(checkpoint, epoch);
  const auto model = parts.models.make(config.model, "model");

  auto weights = saved.tensors;
  check(
      !has_lora(weights), ErrorKind::Usage, kWhere, checkpoint,
      ": only adapters were trained, and the optimizer has no state for the weights of the network; hint: npu_tool weights --from RUN --to "
      "FILE.pt --as torchvision (or hf) writes the merged weights, and --as peft the adapters");
  auto parameters = parameters_of(*model.module);
  check(state.count("optimizer") > 0, ErrorKind::Checkpoint, kWhere, checkpoint,
        ": has several optimizers, and such a file has one; hint: npu_tool weights --from RUN --to FILE.safetensors writes the weights "
        "alone");
  auto of_optimizer = state.at("optimizer");
  if (detail::has_split_projections(weights)) {
    weights = detail::join_projections(weights);
    parameters = detail::join_projections(parameters);
    of_optimizer = detail::join_projections(of_optimizer);
  }
  const auto grouped = parts.optimizers.make(config.optimizer, "optimizer", on_meta(parameters));
  const double lr = history && !history->empty() ? history->back().lr : grouped->lr();
  auto file = PthValue::dict();
  file.set("model_state_dict", PthValue::dict(weights));
  file.set("optimizer_state_dict", optimizer_dict(optimizer, *grouped, of_optimizer, lr));
  file.set("epoch", epoch).set("best_accuracy", accuracy_of(saved, history, checkpoint, epoch));

  make_folder(folder);
  TorchCheckpointFiles out{.epoch = epoch, .files = {}, .averages = saved.averages};
  const auto write = [&](const std::string& name, const PthValue& value) {
    out.files.push_back((fs::path(folder) / name).string());
    save_pth(out.files.back(), value);
  };
  write("best_model_epoch_" + std::to_string(epoch) + ".pth", file);
  if (history) write("training_history.pth", history_dict(*history));
  return out;
}

void save_trained_torchscript(const std::string& from, const std::string& path, const std::vector<std::string>& overrides,
                              const Parts& parts, WeightSet set) {
  const auto checkpoint = checkpoint_of(from);
  const auto config = detail::config_without_training(checkpoint, overrides, parts);
  check(config.model.name == "torchscript", ErrorKind::Usage, kWhere, "the model of ", checkpoint, " is '", config.model.name,
        "'; only a model that came from TorchScript is written as one; hint: npu_tool weights --from RUN --to FILE.pt --as torchvision "
        "writes weights for PyTorch");
  auto model = parts.models.make(config.model, "model");
  load_weights(model, detail::saved_weights(checkpoint, set).tensors);
  write_file_atomic(path, torchscript_bytes(model));
}

}  // namespace npu_train
