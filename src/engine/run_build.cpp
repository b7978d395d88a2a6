#include "run_build.hpp"
#include "engine/build_memory.hpp"
#include "engine/config_rules.hpp"
#include "engine/equal_data.hpp"
#include "engine/hub_config.hpp"
#include "engine/overlap_report.hpp"
#include "engine/rank_setup.hpp"
#include "engine/text_rules.hpp"
#include "engine/unfreezing.hpp"
#include "engine/unit_model.hpp"
#include "npu_train/engine/model_precision.hpp"

#include <algorithm>

#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/seed.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/device_augment.hpp"
#include "npu_train/data/image_dataset.hpp"
#include "npu_train/data/relabelled.hpp"
#include "npu_train/data/sample_choice.hpp"
#include "npu_train/data/sampler.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/product_speed.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/device/transfer.hpp"
#include "npu_train/engine/model_source.hpp"
#include "npu_train/engine/weights.hpp"
#include "npu_train/nn/checkpoint_plan.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/nn/summary.hpp"
#include "npu_train/precision/emulation.hpp"
#include "npu_train/precision/policy.hpp"
#include "npu_train/train/classifier.hpp"
#include "npu_train/train/monitors.hpp"

namespace npu_train {
namespace {

/// Applies `trainer.gradient_checkpointing` to a configured model on `device`.
Model checkpointed(Model model, const CheckpointPlan& plan, const Precision& precision, const Device& device, int64_t batch) {
  using Kind = CheckpointPlan::Kind;
  if (plan.kind == Kind::None) return model;
  std::vector<bool> marks(model.blocks.size(), true);
  if (!marks.empty()) marks.back() = false;  // recomputing the last block saves nothing: its backward follows immediately
  if (plan.kind == Kind::Budget && !marks.empty()) {
    const auto scope = precision.forward_scope();
    const auto small = [&](int64_t n) { return to_device(example_batch(model.inputs, {.samples = n, .zeros = true}), device); };
    const auto costs = block_costs(model, small, batch);
    marks = choose_checkpoints(costs, plan.budget);
    const auto bytes = peak_bytes(costs, marks);
    log_info("gradient_checkpointing: ", std::count(marks.begin(), marks.end(), true), " of ", marks.size(),
             " blocks are recomputed; activations of at most ", human_bytes(static_cast<double>(bytes)), ", instead of ",
             human_bytes(static_cast<double>(peak_bytes(costs, std::vector<bool>(marks.size(), false)))));
    if (bytes > plan.budget)
      log_warning("gradient_checkpointing: the budget of ", human_bytes(static_cast<double>(plan.budget)),
                  " cannot be met; hint: a smaller batch_size with accumulate_grad_batches");
  }
  return with_checkpoints(std::move(model), marks, plan.every);
}

/// Passes the run's seed to a task that draws random numbers, unless the configuration sets the task's own seed.
PartConfig with_run_seed(PartConfig task, int64_t seed, const Parts& parts) {
  const auto fields = parts.tasks.describe(task.name);
  const bool draws = std::any_of(fields.begin(), fields.end(), [](const FieldInfo& f) { return f.name == "seed"; });
  if (draws && task.options.find("seed") == nullptr) task.options.set("seed", ConfigNode(seed));
  return task;
}

// Replaces a task's balanced_classes by the weights that follow from the training data, so that the resolved configuration has the numbers.
// Classes of the model without data have the weight 1.
PartConfig with_class_weights(PartConfig task, const DatasetPair& data, int64_t model_classes) {
  const auto* balanced = task.options.find("balanced_classes");
  if (balanced == nullptr || !balanced->is_scalar() || balanced->scalar() != "true") return task;
  const char* const kKey = "task.balanced_classes";
  const auto* given = task.options.find("class_weights");
  check(given == nullptr || given->items().empty(), ErrorKind::Usage, kKey, "both it and task.class_weights are set; allowed: one of them");
  check(data.train != nullptr && data.info().num_classes > 0, ErrorKind::Usage, kKey, "needs training data with classes, and no stream");
  std::vector<int64_t> counts(static_cast<size_t>(data.info().num_classes));
  auto subset = detail::sample_choice(data).subset;
  for (const int64_t i : subset.empty() ? sequence(data.train->size()) : std::move(subset)) {
    const auto label = data.train->label(i);
    check(label >= 0 && label < data.info().num_classes, ErrorKind::Usage, kKey, "the data set does not know the class of sample ", i,
          "; hint: Dataset::label(), or task.class_weights");
    ++counts[static_cast<size_t>(label)];
  }
  auto weights = balanced_class_weights(counts);
  weights.resize(std::max(weights.size(), static_cast<size_t>(std::max<int64_t>(0, model_classes))), 1);
  task.options.set("class_weights", detail::write_value(weights));
  task.options.erase("balanced_classes");
  return task;
}

bool wants_channels_last(const std::string& memory_format, const Device& device, const ParameterSet& parameters) {
  const bool has = backend_of(device).capabilities(device).channels_last;
  check(has || memory_format != "channels_last", ErrorKind::Usage, "trainer.memory_format", device.str(),
        " has no kernels for channels_last; allowed: auto, contiguous");
  if (memory_format != "auto" || !has) return memory_format == "channels_last";
  return std::any_of(parameters.begin(), parameters.end(), [](const Parameter& p) { return p.value.dim() == 4 && p.value.size(2) > 1; });
}

const char* remedy_of_model(const Strategy& strategy) {
  if (strategy.ranks().size() == 1) return "a smaller model, or a card with more memory; check what else uses the device's memory";
  if (strategy.shards_parameters())
    return "TMPDIR on a disk with room for the model of each rank of this machine, a smaller model, or a card with more memory";
  return "trainer.strategy=zero3, where a rank keeps a part of the model; a smaller model, or a card with more memory; check what else "
         "uses the device's memory";
}

/// Returns the most sharding that is allowed for a task given in code. The optimizers of an AlternatingTask need complete states.
Sharding most_sharding_of(Task& task) {
  if (dynamic_cast<const AlternatingTask*>(&task) != nullptr) return Sharding::None;
  return task.units().empty() ? Sharding::Gradients : Sharding::Parameters;
}

/// Checks monitors against the metrics of a task. Only the library's tasks can be checked before their model exists.
void check_monitors(const RunConfig& config, const Parts& parts) {
  if (!detail::is_own_part(parts.tasks, builtin_parts().tasks, config.task.name)) return;
  Model none;
  none.module = std::make_shared<torch::nn::Module>();
  none.forward = [](const at::Tensor& input) { return input; };
  detail::check_monitors(*parts.tasks.make(config.task, "task", none, parts.metrics), config.checkpoint, config.early_stopping);
}

}  // namespace

void Run::build(const RunConfig& given, const Parts& parts, std::shared_ptr<std::atomic<bool>> stop) {
  RunConfig config = given;
  if (const auto weights = detail::option_text(config.model.options, "weights"); !task && !weights.empty())
    config.model = with_weights_options(config.model, parts, weights, /*all=*/false);
  device = run_device(config);
  RankSetup ranks(config, device, parts, [stop] { return stop->load(std::memory_order_relaxed); });
  strategy = ranks.strategy();
  precision = make_precision(precision_options(config), device);
  seed_everything(static_cast<uint64_t>(config.seed));
  resolved = npu_train::resolved(config, parts);
  check_equal_on_ranks(strategy->ranks(), resolved);
  check(task || !config.model.name.empty(), ErrorKind::Usage, "model", "no model is named; allowed: ", join(parts.models.names()),
        "; hint: set model: {name: resnet50}, or pass a task of your own to fit()");
  if (!task) check_monitors(config, parts);
  if (!task && data.train == nullptr) detail::check_context(config, parts);
  building = {"the data set was opened", "a data set that is read from disk, or a machine with more memory"};
  make_data(config, parts);
  detail::check_equal_data(strategy->ranks(), data, static_cast<uint64_t>(config.seed));
  config.trainer.accumulate_grad_batches = micro_batches_of_rank(strategy->ranks(), ranks.first_number(),
                                                                 detail::accumulated_batches(data, config.trainer, ranks.first_number()));
  write_statistics();
  BuildMemory memory(ranks.may_shard_parameters(), config.output.dir);
  if (!task) {
    building = {"the model was made and moved", remedy_of_model(*strategy)};
    auto part = with_data_defaults(config.model, data.info(), data.options.image_size, parts);
    part = detail::with_hub_options(part, parts, /*all=*/true);
    model = make_model(part, parts, static_cast<uint64_t>(config.seed));
    check_number_of_classes(config, parts);
    detail::check_image_tokens(data, model);
    detail::check_packing(data, model);
    keep_in_fp32(model, amp_modules(config.amp), device, *precision);
    if (!model.weights.empty()) {
      const auto report = load_weights_file(model, read_weights_for(part, parts, model.weights), model.weights,
                                            {.strict = model.weights_strict, .classes = data.info().class_names});
      log(report.sound() ? LogLevel::Info : LogLevel::Warning, report.str());
    }
    part = tune(model, part, parts, static_cast<uint64_t>(config.seed));
    const bool has_units = !model.blocks.empty() || !model.units.empty();
    ranks.choose(config, parameters_of(*model.module), has_units ? Sharding::Parameters : Sharding::Gradients, parts);
    strategy = ranks.strategy();
    if (!moves_in_units(config)) model.module->to(device.c10());
    building = {"gradient checkpointing was planned, with forwards of the blocks",
                "trainer.gradient_checkpointing=blocks, which needs no plan"};
    const auto task_part = with_class_weights(with_run_seed(config.task, config.seed, parts), data, model.num_classes);
    task = parts.tasks.make(task_part, "task",
                            checkpointed(in_units(model, strategy), CheckpointPlan::parse(config.trainer.gradient_checkpointing),
                                         *precision, device, data.options.batch_size),
                            parts.metrics);
    ConfigProblems none;
    resolved.set("model", detail::write_value(parts.models.resolve(part, "model", none)));
    resolved.set("task", detail::write_value(parts.tasks.resolve(task_part, "task", none)));
  }
  check(model.module != nullptr || !model.blocks.empty() || !has_module_paths(config.amp), ErrorKind::Usage,
        config.amp.fp32_modules.empty() ? "amp.low_precision_modules" : "amp.fp32_modules",
        "applies to blocks of a configured model; a task given in code keeps modules in fp32 with Fp32Region in its own forward");
  check(model.module != nullptr || CheckpointPlan::parse(config.trainer.gradient_checkpointing).kind == CheckpointPlan::Kind::None,
        ErrorKind::Usage, "trainer.gradient_checkpointing",
        "applies to blocks of a configured model; a task given in code calls npu_train::checkpoint in its own forward");
  building = {"the model was moved", remedy_of_model(*strategy)};
  if (!moves_in_units(config)) task->to(device.c10());
  parameters = std::make_shared<const ParameterSet>(task->parameters());
  if (model.module == nullptr) {
    ranks.choose(config, *parameters, most_sharding_of(*task), parts);
    strategy = ranks.strategy();
  }
  if (model.blocks.empty()) connect_units(*task, strategy);
  strategy->broadcast(weights_of(*task, *parameters));
  check(!parameters->empty(), ErrorKind::Usage, "Trainer", "the task has no parameters to train");
  const bool channels_last = wants_channels_last(config.trainer.memory_format, device, *parameters);
  if (channels_last)
    for (const auto& p : *parameters)
      if (p.value.dim() == 4) p.value.set_data(p.value.contiguous(at::MemoryFormat::ChannelsLast));
  if (!strategy->ranks().is_main()) seed_everything(rank_seed(static_cast<uint64_t>(config.seed), strategy->ranks().rank()));
  building = {"the optimizer's state, master weights and averages were made",
              device.is_cpu() || config.dist.offload != "none"
                  ? "an optimizer with less state (sgd), average.enabled=false, or a card with more memory"
                  : "dist.offload=optimizer, an optimizer with less state (sgd), average.enabled=false, or a card with more memory"};
  LoopParts loop_parts;
  if (config.trainer.mfu) measure_flops(loop_parts);  // before parameters are sharded
  make_optimizers(config, parts, ranks, memory);
  building = {"the loaders and the loop were made", "fewer data.num_workers, or a machine with more memory"};
  make_loaders(config, channels_last);
  make_schedule(config, parts);
  lend(loop_parts);
  loop_parts.model_name = config.model.name;
  loop_parts.stop = std::move(stop);
  const auto scale = lr_scale_of_ranks(strategy->ranks(), ranks.first_number(), config.trainer.lr_scaling);
  for (auto& one : loop_parts.optimizers) one.base_lr = one.optimizer->lr() * scale;
  loop = std::make_unique<TrainLoop>(std::move(loop_parts), config.trainer, config.checkpoint, config.early_stopping);
  if (auto stages = detail::unfreeze_stages(config.model, parts); !stages.empty())
    loop->add_callback(std::make_shared<detail::Unfreezing>(std::move(stages), *loop));
  if (config.dist.preset == "communication" && strategy->ranks().size() > 1) loop->add_callback(std::make_shared<OverlapReport>());
}

/// Rejects a model whose number of classes differs from that of the data. Surplus outputs would go unnoticed, because training merely makes
/// them improbable. Also rejects the task classifier for targets with several classes or numbers, because it would interpret them as
/// probabilities of single classes.
void Run::check_number_of_classes(const RunConfig& config, const Parts& parts) const {
  const auto* images = dynamic_cast<const ImageDataset*>(data.train.get());
  check(images == nullptr || images->targets() == 0 || config.task.name != "classifier", ErrorKind::Usage, "task.name",
        "classifier needs one class for each sample, and these images have ", images == nullptr ? 0 : images->targets(),
        " targets each; hint: task={name: multilabel_classifier} for several classes, task={name: regressor} for numbers");
  const auto in_data = data.info().num_classes;
  if (in_data <= 0 || model.num_classes <= 0 || model.num_classes == in_data) return;
  const bool allowed = model.num_classes > in_data && parts.models.tuning(config.model, "model").allow_unused_classes;
  check(allowed, ErrorKind::Usage, "model.num_classes", "the model has ", model.num_classes, " classes and the data ", in_data,
        "; hint: omit it; the data set supplies it",
        model.num_classes > in_data ? "; model.allow_unused_classes=true trains outputs without data" : "");
}

/// Writes the statistics of the images into `normalize`, because a checkpoint must contain them to be usable without the data.
void Run::write_statistics() {
  const auto info = data.info();
  auto* options = resolved.find("data");
  if (options == nullptr || info.mean.empty()) return;
  for (const char* list : {"train_transforms", "val_transforms"}) {
    auto* steps = options->find(list);
    if (steps == nullptr || !steps->is_list()) continue;
    std::vector<ConfigNode> filled;
    for (auto step : steps->items()) {
      const auto* name = step.find("name");
      const auto* mean = step.find("mean");
      if (name != nullptr && name->scalar() == "normalize" && (mean == nullptr || mean->items().empty())) {
        step.set("mean", detail::write_value(info.mean));
        step.set("std", detail::write_value(info.std));
      }
      filled.push_back(std::move(step));
    }
    *steps = ConfigNode::list(std::move(filled));
  }
}

void Run::choose_validated(const std::string& name) {
  if (validated == Split::Train) data.val = data.train;
  if (validated == Split::Test) data.val = data.open_test ? data.open_test() : nullptr;
  check(validated == Split::Val || data.val != nullptr, ErrorKind::Usage, "data", "the data set ", name, " has no ",
        validated == Split::Test
            ? "test data; hint: data.test names them, for data with this key; those of an image_folder are in ROOT/test/<class>/"
            : "training samples to validate: they are a stream; allowed: val, test");
}

void Run::make_data(const RunConfig& config, const Parts& parts) {
  if (data.train == nullptr && data.train_stream == nullptr) {
    check(!config.data.name.empty(), ErrorKind::Usage, "data", "no data set is named; allowed: ", join(parts.datasets.names()),
          "; hint: set data: {name: generated}, or pass data of your own to fit()");
    const auto open = [&] { data = parts.datasets.make(config.data, "data", parts.transforms); };
    const auto* download = config.data.options.find("download");
    if (download != nullptr && download->is_scalar() && download->scalar() == "true")
      strategy->ranks().main_first(open);
    else
      open();
    choose_validated(config.data.name);
    data = in_classes(std::move(data), classes);
  } else {
    choose_validated("given in code");
    data.options = bind<detail::PlainDataOptions>(config.data.options, "data");
  }
  set_collate(data, parts.collates);
}

void Run::make_loaders(const RunConfig& config, bool channels_last) {
  LoaderOptions runtime;
  runtime.seed = static_cast<uint64_t>(config.seed);
  runtime.channels_last = channels_last;
  runtime.rank = strategy->ranks().rank();
  runtime.world_size = strategy->ranks().size();
  if (config.trainer.static_shapes) runtime.last_batch = LastBatch::Pad;
  if (backend_of(device).capabilities(device).pinned_memory) runtime.finish = [](Batch batch) { return pin(batch); };
  share_workers(data.options);
  detail::ContextWarmupHook warmup(data, config.trainer, runtime.world_size);
  auto of_training = runtime;
  of_training.finish = chain_hooks(warmup.hook(), runtime.finish);
  train.emplace(train_loader(data, std::move(of_training)));
  if (const auto chosen = static_cast<int64_t>(train->options().subset.size()); chosen > 0 && runtime.rank == 0)
    log_info("data.sampler: an epoch has ", with_commas(chosen), " of the ", with_commas(data.train->size()), " training samples");
  warmup.set_rounds_per_epoch(train->rounds_per_epoch(), config.trainer);
  if (data.val != nullptr) val.emplace(val_loader(data, runtime));
  if (train->options().augment_on_device) {
    const auto& shape = data.info().shape;
    const auto split = split_for_device(data.train_pipeline, shape[0], {shape[1], shape[2]});
    log_info("training transforms: ", where_it_runs(data.train_pipeline, split), " (", device.str(), ")");
  }
}

// Sets the FLOP per sample and the speed of matrix products, measured in fp32 and in the precision's dtype; the faster one counts.
void Run::measure_flops(LoopParts& p) const {
  check(model.module != nullptr, ErrorKind::Usage, "trainer.mfu", "a task without a model has no FLOPs to count; allowed: false");
  p.flops_per_sample = kStepPasses * static_cast<double>(flops_per_sample(model));
  const auto low = precision->low_precision_dtype();
  double best = gemm_flops(device);
  if (has_units_for(device, low)) best = std::max(best, gemm_flops(device, low));
  p.product_flops = best * strategy->ranks().size();
  if (strategy->ranks().is_main())
    log_info("trainer.mfu: ", with_commas(static_cast<int64_t>(p.flops_per_sample)), " FLOPs per sample, products at ", 1e-9 * best,
             " GFLOP/s", strategy->ranks().size() > 1 ? " on each rank" : "");
}

void Run::lend(LoopParts& p) {
  p.task = task.get();
  p.parameters = parameters;
  p.schedule = schedule.get();
  p.average = average.get();
  for (const auto& one : optimizers)
    p.optimizers.push_back(
        {.name = one.name, .precision = one.precision.get(), .optimizer = one.optimizer.get(), .strategy = one.strategy.get()});
  p.train_loader = &*train;
  p.val_loader = val ? &*val : nullptr;
  p.device = device;
  p.config = resolved;
  p.classes = join(data.info().class_names, "\n");
}

void Run::open_store(const std::string& dir, const CheckpointOptions& options) {
  store = std::make_unique<CheckpointStore>(dir, options);
  if (average && average->options().kind == "checkpoints") store->keep_newest(average->options().last);
  loop->set_store(store.get());
}

RunView Run::view(const RunConfig& config, const Parts& parts) const {
  RunView out{config, parts, resolved, device, model};
  out.strategy = strategy.get();
  out.task = task.get();
  out.precision = precision.get();
  out.optimizer = optimizers.empty() ? nullptr : optimizers.front().optimizer.get();
  out.loop = loop.get();
  out.building = building.what;
  out.remedy = building.remedy;
  return out;
}

void Run::announce(const std::string& run_dir) const {
  const auto batch = train->options().batch_size;
  const auto k = loop->options().accumulate_grad_batches;
  int64_t trained = 0;
  for (const auto& one : optimizers) trained += one.optimizer->parameters().numel();
  log_info("device ", device.str(), ", precision ", precision->name(), ", ", with_commas(trained),
           " trainable parameters, effective batch ", batch * k * strategy->ranks().size(), " (", batch, " x ", k, " accumulated x ",
           strategy->ranks().size(), " ranks)");
  announce_groups();
  log_info("data: ", data.summary());
  if (!run_dir.empty()) log_info("files of this run: ", run_dir);
}

}  // namespace npu_train
