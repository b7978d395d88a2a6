/// The keys that every data set understands under `data:`, in addition to its own.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/core/config_table.hpp"

namespace npu_train {

// Sequence length warmup: `data.context_warmup` (Li et al., "The Stability-Efficiency Dilemma: Investigating Sequence Length Warmup for
// Training GPT Models", NeurIPS 2022).

/// Section `context_warmup`: training begins with the first `from` tokens of each sample; the length grows linearly over `steps` steps.
struct ContextWarmup {
  int64_t from = 64;  ///< tokens of a sample in the first step, at least 8
  int64_t steps = 0;  ///< attempted step (from 0) from which samples have their full length; 0: no warmup
  static const ConfigTable<ContextWarmup>& config_table();
};

/// Returns the number of tokens per sample in attempted step `step`, at most `context`. It rises linearly, in multiples of 8. Error(Usage)
/// if `from` is below 8, or not below `context`.
int64_t warmup_length(const ContextWarmup& warmup, int64_t context, int64_t step);

/// Truncates each sequence to its first `length` tokens, in every field of ids [batch, tokens] that has the size of "input". Returns the
/// batch unchanged if its sequences are not longer. Error(Usage) unless "input" has ids [batch, tokens].
Batch first_tokens(Batch batch, int64_t length);

// The keys of every data set.

/// Options of a data set derive from this and add the fields with `data_fields`:
///   struct MyOptions : npu_train::DataOptions {
///     std::string file;
///     static const npu_train::ConfigTable<MyOptions>& config_table() {
///       using Table = npu_train::ConfigTable<MyOptions>;
///       static const auto table = npu_train::data_fields(Table("my data").field("file", &MyOptions::file, "file with the data"));
///       return table;
///     }
///   };
struct DataOptions {
  int64_t batch_size = 32;     ///< samples of a micro-batch, per device
  int64_t val_batch_size = 0;  ///< 0: same as batch_size
  std::string num_workers = "auto";
  int64_t prefetch_factor = 2;
  bool shuffle = true;
  std::string sampler = "uniform";  ///< uniform | balanced | weighted | subset: which training samples an epoch has
  std::string sampler_file{};       ///< file with the weights for weighted, or with the indices for subset
  bool drop_last = false;
  int64_t image_size = 0;                    ///< replaces `size: 0` of a transform
  std::vector<PartConfig> train_transforms;  ///< each data set has its own defaults
  std::vector<PartConfig> val_transforms;
  std::string jpeg = "auto";        ///< auto: exact for validation and prediction, fast in training | exact | fast: see Resampling::exact
  std::string augment_on = "host";  ///< host | device: runs mixup, cutmix and all transforms after the last one that resizes
  double mixup_alpha = 0;
  double cutmix_alpha = 0;
  std::string on_bad_sample = "error";  ///< error | skip: a sample that cannot be read is omitted from its batch, and counted
  PartConfig collate{};                 ///< how samples become a batch; no name: the default of the data set, see LoaderOptions::collate
  int64_t batch_tokens = 0;             ///< minimum tokens per optimizer step, summed over ranks; sets accumulate_grad_batches. 0: off
  ContextWarmup context_warmup;
};

template <std::derived_from<DataOptions> T>
ConfigTable<T> data_fields(ConfigTable<T> table) {
  const auto add = [&table]<class V>(const char* name, V DataOptions::*member, const char* doc, Bounds bounds = {}) {
    table.field(name, static_cast<V T::*>(member), doc, std::move(bounds));
  };
  add("batch_size", &DataOptions::batch_size, "samples of a micro-batch, per device", at_least(1));
  add("val_batch_size", &DataOptions::val_batch_size, "samples of a validation batch; 0: same as batch_size", at_least(0));
  add("num_workers", &DataOptions::num_workers, "loader threads: auto (the cores of this process, at most 16) or a number; 0: none");
  add("prefetch_factor", &DataOptions::prefetch_factor, "batches prepared in advance, per worker", between(1, 64));
  add("shuffle", &DataOptions::shuffle, "shuffles the training samples in each epoch");
  add("sampler", &DataOptions::sampler,
      "which training samples an epoch has; uniform: each once; balanced: drawn with replacement, so that all classes are equally "
      "frequent; weighted: drawn with replacement, in proportion to the weights in sampler_file; subset: those in sampler_file once",
      one_of({"uniform", "balanced", "weighted", "subset"}));
  add("sampler_file", &DataOptions::sampler_file,
      "for sampler weighted or subset: text file with a number in each line, the weight of each training sample or the indices of a "
      "subset");
  add("drop_last", &DataOptions::drop_last, "omits a last training batch that is not full");
  add("image_size", &DataOptions::image_size, "height and width of images after transforms whose size is 0", between(0, 8192));
  add("train_transforms", &DataOptions::train_transforms, "transforms of training images, in order; normalize last");
  add("val_transforms", &DataOptions::val_transforms, "transforms of validation images, in order; normalize last");
  add("jpeg", &DataOptions::jpeg,
      "how images are decoded and resized; exact: as Pillow does, bit for bit; fast: JPEG files at 1/2, 1/4 or 1/8 where they are reduced "
      "that much, which changes pixels; auto: fast in training, exact in validation",
      one_of({"auto", "exact", "fast"}));
  add("augment_on", &DataOptions::augment_on,
      "where images are transformed; device: the transforms after the last resizing one, and mixup and cutmix, run on complete batches on "
      "the training device",
      one_of({"host", "device"}));
  add("mixup_alpha", &DataOptions::mixup_alpha, "mixup: parameter of its Beta distribution; 0: off", at_least(0));
  add("cutmix_alpha", &DataOptions::cutmix_alpha,
      "cutmix: parameter of its Beta distribution; 0: off; with mixup one of the two is drawn per batch", at_least(0));
  add("on_bad_sample", &DataOptions::on_bad_sample,
      "reaction to a sample that cannot be read; error: ends the run; skip: the sample is omitted from its batch, named in the log and "
      "counted",
      one_of({"error", "skip"}));
  add("collate", &DataOptions::collate,
      "how samples become a batch: stack, pad, or one that the program adds; not given: stack, or for texts padding to the longest one");
  add("batch_tokens", &DataOptions::batch_tokens,
      "of text: tokens of an optimizer step over all ranks, at least; sets trainer.accumulate_grad_batches; 0: off", at_least(0));
  add("context_warmup", &DataOptions::context_warmup, "of text: shorter samples in the first steps");
  table.synonym("workers", "num_workers").synonym("transforms", "train_transforms").synonym("path", "root").synonym("data_dir", "root");
  return table;
}

/// Returns a part with options, for lists in code: `{part("random_crop", {{"size", 32}}), part("normalize")}`.
PartConfig part(const std::string& name, ConfigNode options = ConfigNode::map());

}  // namespace npu_train
