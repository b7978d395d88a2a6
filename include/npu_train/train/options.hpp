/// Options of the training loop, as in a configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "npu_train/core/config_table.hpp"

namespace npu_train {

/// Section `trainer`.
struct TrainerOptions {
  int64_t max_epochs = 10;              ///< stop after so many epochs; -1: no limit
  int64_t max_steps = -1;               ///< stop after so many steps taken; -1: no limit
  double max_time = -1;                 ///< stop after so many seconds of training in this process; -1: no limit
  int64_t accumulate_grad_batches = 1;  ///< micro-batches per update
  std::string devices = "auto";         ///< N: train_app starts N processes on this machine, each with its own device | auto: the processes
                                        ///< that a launcher or --nproc has started, otherwise one for each GPU or NPU
  std::string strategy = "auto";    ///< what ranks divide: ddp: samples | zero1: also optimizer state | zero2: also gradient sums | zero3:
                                    ///< also parameters | single: one process | auto: single, or the first that fits
  std::string lr_scaling = "none";  ///< factor on learning rates: none | linear: the number of ranks | sqrt: its square root
  bool sync_batchnorm = false;      ///< BatchNorm normalises over the micro-batches of all ranks
  bool mfu = false;                 ///< report the model's FLOP/s, and their share of the measured speed of matrix products
  double gradient_clip_val = 0;     ///< 0: no clipping
  std::string gradient_clip_algorithm = "norm";  ///< norm | value
  std::string gradient_checkpointing = "none";   ///< none | blocks | every:N | budget:2GiB, see nn/checkpoint_plan.hpp
  bool static_shapes = false;                    ///< keep one shape for every batch: the last one is padded and masked
  std::string memory_format = "auto";            ///< layout of images and convolution weights: auto | contiguous | channels_last
  int64_t check_val_every_n_epoch = 1;           ///< 0: never validate
  std::string val_check_interval = "1.0";  ///< validations inside an epoch: after every N steps (an integer), or each time this share of
                                           ///< the epoch's steps is done ("0.25"); "1.0": only at the end of the epoch
  int64_t num_sanity_val_steps = 2;        ///< validation batches that run before the first step, as a test; 0: none
  int64_t limit_train_batches = -1;        ///< micro-batches of an epoch, on each rank; -1: all
  int64_t limit_val_batches = -1;
  int64_t overfit_batches = 0;         ///< train and validate repeatedly on the first N batches of each rank; 0: off
  bool fast_dev_run = false;           ///< run only one training and one validation batch, and write no files
  int64_t log_every_n_steps = 50;      ///< steps between log lines, and between rows of metrics.csv
  int64_t max_consecutive_skips = 32;  ///< number of consecutive overflows at the smallest scale after which the run ends as diverged
  bool detect_anomaly = false;         ///< explain gradients that are not finite, and the first overflow of each row of overflows; slower
  int64_t threads = 0;                 ///< CPU threads of operators; 0: libtorch's default
  std::string benchmark = "auto";      ///< auto | true | false: cuDNN tries its algorithms on the first batch of each shape (GPUs)
  std::string allow_tf32 = "auto";     ///< auto | true | false: fp32 products and convolutions of a GPU in TF32
  std::string cuda_graphs = "auto";    ///< auto | true | false: capture forward and backward of full windows and replay them (GPUs)
  std::string on_divergence = "stop";  ///< stop | rollback (to the last checkpoint with a tenth of the learning rate, at most twice)
  std::string profiler = "none";       ///< none | simple (time by phase) | chrome (also a trace of operators), see analyze/profiler.hpp
  std::string on_oom = "stop";         ///< if memory runs out: stop | retry (the window, and all later ones, in smaller micro-batches)
  static const ConfigTable<TrainerOptions>& config_table();
};

/// Returns the number of devices; 0 for auto. Error(Usage) unless `text` is auto or a number from 1 to 1024.
int parse_devices(const std::string& text);

/// A parsed val_check_interval: `steps` above 0, or a `fraction` in (0, 1]. Error(Usage) for another text.
struct ValidationInterval {
  int64_t steps = 0;
  double fraction = 0;
};
ValidationInterval parse_val_check_interval(const std::string& text);

/// Returns the number of rounds of a training epoch; in each round, every rank takes one micro-batch. `rounds`: number of rounds of the
/// data, before it is limited by limit_train_batches, overfit_batches and fast_dev_run; nullopt: unknown. Returns nullopt if the number is
/// unknown and not limited.
std::optional<int64_t> limited_rounds(const TrainerOptions& options, std::optional<int64_t> rounds);

/// Section `checkpoint`.
struct CheckpointOptions {
  bool enabled = true;
  std::string monitor = "auto";  ///< metric that ranks checkpoints ("val/acc1", "val/loss", "train/loss", ...); auto: the first metric of
                                 ///< the task
  std::string mode = "auto";     ///< max | min | auto (min for losses and errors)
  int64_t save_top_k = 1;        ///< number of best checkpoints that are kept in addition to `last`; 0: none, -1: all
  bool save_last = true;
  int64_t every_n_epochs = 1;       ///< epochs between checkpoints; 0: none at epoch ends; the end of the run is always saved
  int64_t every_n_train_steps = 0;  ///< checkpoint also after every so many steps taken; 0: off
  bool async = true;                ///< copy the state and write it while training continues; false: training waits for the disk
  static const ConfigTable<CheckpointOptions>& config_table();
};

/// Section `early_stopping`.
struct EarlyStoppingOptions {
  bool enabled = false;
  std::string monitor = "val/loss";
  std::string mode = "auto";
  int64_t patience = 5;  ///< validations without improvement before the run ends; for a metric of the training data, epochs
  double min_delta = 0;  ///< smallest change that counts as improvement
  static const ConfigTable<EarlyStoppingOptions>& config_table();
};

/// Returns whether a larger `monitor` is better. `mode` is max, min or auto.
bool larger_is_better(const std::string& monitor, const std::string& mode);

}  // namespace npu_train
