#include "npu_train/train/options.hpp"

#include <algorithm>
#include <charconv>

#include "npu_train/core/error.hpp"
#include "npu_train/core/read_text.hpp"

namespace npu_train {

int parse_devices(const std::string& text) {
  if (text == "auto") return 0;
  const auto devices = whole_number(text);
  check(devices && *devices >= 1 && *devices <= 1024, ErrorKind::Usage, "trainer.devices", "'", text,
        "' is neither auto nor a number from 1 to 1024");
  return static_cast<int>(*devices);
}

namespace {

std::optional<double> fraction_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

}  // namespace

ValidationInterval parse_val_check_interval(const std::string& text) {
  const auto steps = whole_number(text);
  if (steps && *steps >= 1) return {.steps = *steps};
  const auto fraction = steps ? std::nullopt : fraction_of(text);
  check(fraction && *fraction > 0 && *fraction <= 1, ErrorKind::Usage, "trainer.val_check_interval", "'", text,
        "' is neither a number of steps of at least 1 nor a fraction of an epoch, above 0.0 and up to 1.0");
  return {.fraction = *fraction};
}

const ConfigTable<TrainerOptions>& TrainerOptions::config_table() {
  using T = TrainerOptions;
  static const auto table =
      ConfigTable<T>("trainer")
          .field("max_epochs", &T::max_epochs, "stop after so many epochs; -1: no limit", at_least(-1))
          .field("max_steps", &T::max_steps, "stop after so many optimizer steps; -1: no limit", at_least(-1))
          .field("max_time", &T::max_time, "stop after so many seconds of training in this process; -1: no limit", at_least(-1))
          .field("accumulate_grad_batches", &T::accumulate_grad_batches, "batches that make one optimizer step, on each rank", at_least(1))
          .field("devices", &T::devices,
                 "processes on this machine, each with a device of its own: N: train_app starts them; auto: those that --nproc or another "
                 "launcher starts, otherwise train_app starts one for each GPU or NPU, and one on a CPU")
          .field("strategy", &T::strategy,
                 "what ranks divide: ddp: the samples; zero1: also the optimizer's state; zero2: also the sums of gradients; zero3: "
                 "also the parameters, complete block by block while they are needed; auto: single with one process; with several the "
                 "first of ddp, zero1, zero2 and zero3 that leaves half of the device's memory to activations",
                 one_of({"auto", "single", "ddp", "zero1", "zero2", "zero3"}))
          .field("lr_scaling", &T::lr_scaling, "multiplies all learning rates by the number of processes, or its square root",
                 one_of({"none", "linear", "sqrt"}))
          .field("sync_batchnorm", &T::sync_batchnorm,
                 "with several processes, BatchNorm normalises by the micro-batches of all of them together")
          .field("mfu", &T::mfu,
                 "report the model's FLOP/s in each epoch, and their share of the speed of matrix products, which is measured at the start")
          .field("gradient_clip_val", &T::gradient_clip_val, "bound for gradients, after unscaling; 0: no clipping", at_least(0))
          .field("gradient_clip_algorithm", &T::gradient_clip_algorithm, "norm: global norm; value: each element",
                 one_of({"norm", "value"}))
          .field("gradient_checkpointing", &T::gradient_checkpointing,
                 "blocks of the model that the backward computes again, to save memory: none | blocks | every:N | budget:2GiB")
          .field("static_shapes", &T::static_shapes, "pad and mask the last batch, so that every batch has one shape")
          .field("memory_format", &T::memory_format, "layout of images and convolution weights; auto: the faster one",
                 one_of({"auto", "contiguous", "channels_last"}))
          .field("check_val_every_n_epoch", &T::check_val_every_n_epoch, "validate after every n-th epoch; 0: never", at_least(0))
          .field("val_check_interval", &T::val_check_interval,
                 "also validate inside an epoch: an integer: after every so many optimizer steps; a fraction such as 0.25: after such a "
                 "share of the epoch's steps; 1.0: only at its end")
          .field("num_sanity_val_steps", &T::num_sanity_val_steps, "validation batches tried before the first step", at_least(0))
          .field("limit_train_batches", &T::limit_train_batches, "batches of a training epoch, on each rank; -1: all", at_least(-1))
          .field("limit_val_batches", &T::limit_val_batches, "batches of a validation, on each rank; -1: all", at_least(-1))
          .field("overfit_batches", &T::overfit_batches, "train and validate on the first n batches of each rank again and again; 0: off",
                 at_least(0))
          .field("fast_dev_run", &T::fast_dev_run, "one training and one validation batch; nothing is written")
          .field("log_every_n_steps", &T::log_every_n_steps, "steps between lines and rows of metrics.csv", at_least(1))
          .field("max_consecutive_skips", &T::max_consecutive_skips,
                 "number of consecutive overflows at the smallest scale after which the run ends", at_least(1))
          .field("detect_anomaly", &T::detect_anomaly,
                 "explain the first of each row of overflows, and gradients that are not finite; slower")
          .field("threads", &T::threads, "CPU threads of operators; 0: what libtorch takes", between(0, 4096))
          .field("benchmark", &T::benchmark,
                 "cuDNN tries its algorithms on the first batch of each shape and keeps the fastest, so that runs need not repeat bit for "
                 "bit; "
                 "auto: as the process has it",
                 one_of({"auto", "true", "false"}))
          .field(
              "allow_tf32", &T::allow_tf32,
              "fp32 products and convolutions of a GPU with 10 bits of mantissa; auto: as the process has it (libtorch: convolutions yes, "
              "products no)",
              one_of({"auto", "true", "false"}))
          .field("cuda_graphs", &T::cuda_graphs,
                 "capture forward and backward of full windows once and launch them as one graph; auto: on a GPU, for classifiers with "
                 "built-in networks; "
                 "true: also on other devices that have graphs, and for tasks that do not say that they can be captured",
                 one_of({"auto", "true", "false"}))
          .field("on_divergence", &T::on_divergence,
                 "stop: end with exit code 5; rollback: go back to the last checkpoint with a tenth of the learning rate, at most twice",
                 one_of({"stop", "rollback"}))
          .field(
              "profiler", &T::profiler,
              "where fit()'s time goes, in the log and in profile/ of the run's folder; simple: by phase; chrome: also operators, layers "
              "and memory of three steps, with trace.json",
              one_of({"none", "simple", "chrome"}))
          .field("on_oom", &T::on_oom,
                 "reaction to out of memory in a step; stop: the run ends with exit code 8; retry: runs this window again, and all later "
                 "ones, in twice as many micro-batches of half the size",
                 one_of({"stop", "retry"}))
          .synonym("epochs", "max_epochs")
          .synonym("num_train_epochs", "max_epochs")
          .synonym("grad_accum_steps", "accumulate_grad_batches")
          .synonym("gradient_accumulation_steps", "accumulate_grad_batches")
          .synonym("max_grad_norm", "gradient_clip_val")
          .synonym("clip_grad", "gradient_clip_val");
  return table;
}

std::optional<int64_t> limited_rounds(const TrainerOptions& options, std::optional<int64_t> rounds) {
  const auto limit = [&](int64_t at_most) { rounds = std::min(rounds.value_or(at_most), at_most); };
  if (options.overfit_batches > 0) limit(options.overfit_batches);
  if (options.limit_train_batches >= 0) limit(options.limit_train_batches);
  if (options.fast_dev_run) limit(1);
  return rounds;
}

const ConfigTable<CheckpointOptions>& CheckpointOptions::config_table() {
  using T = CheckpointOptions;
  static const auto table =
      ConfigTable<T>("checkpoint")
          .field("enabled", &T::enabled, "false: write no checkpoints")
          .field("monitor", &T::monitor,
                 "metric that ranks checkpoints: val/<metric> or train/<metric>; auto: the task's first metric, of the validation if the "
                 "run has one")
          .field("mode", &T::mode, "whether a larger value is better; auto: min for losses and errors", one_of({"auto", "max", "min"}))
          .field("save_top_k", &T::save_top_k, "best checkpoints that are kept; 0: none, -1: all", at_least(-1))
          .field("save_last", &T::save_last, "keep the newest one, whatever its score")
          .field("every_n_epochs", &T::every_n_epochs, "epochs between checkpoints; 0: none at epoch ends", at_least(0))
          .field("every_n_train_steps", &T::every_n_train_steps, "also every so many optimizer steps; 0: off", at_least(0))
          .field("async", &T::async,
                 "true: copy the state to host memory and write it while training continues; false: training waits for the disk")
          .synonym("async_save", "async")
          .synonym("background", "async");
  return table;
}

const ConfigTable<EarlyStoppingOptions>& EarlyStoppingOptions::config_table() {
  using T = EarlyStoppingOptions;
  static const auto table =
      ConfigTable<T>("early_stopping")
          .field("enabled", &T::enabled, "stop when the monitored metric no longer improves; a section that is given is enabled")
          .field("monitor", &T::monitor, "metric to watch: val/<metric> or train/<metric>")
          .field("mode", &T::mode, "whether a larger value is better; auto: min for losses and errors", one_of({"auto", "max", "min"}))
          .field("patience", &T::patience, "validations without improvement before the end; epochs, for train/<metric>", at_least(1))
          .field("min_delta", &T::min_delta, "smallest change that counts as improvement", at_least(0));
  return table;
}

bool larger_is_better(const std::string& monitor, const std::string& mode) {
  if (mode != "auto") return mode == "max";
  if (monitor.substr(monitor.rfind('/') + 1) == "ece") return false;
  for (const char* word : {"loss", "error", "mae", "mse", "perplexity"})
    if (monitor.find(word) != std::string::npos) return false;
  return true;
}

}  // namespace npu_train
