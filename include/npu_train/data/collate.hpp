/// Makes a batch of samples whose shapes may differ: boxes of a detection, points, texts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/core/config_table.hpp"
#include "npu_train/core/registry.hpp"
#include "npu_train/data/dataset.hpp"

namespace npu_train {

/// Makes the tensors of a batch from its samples, on the host. Many threads call it at once. The loader sets size, weight and ids of the
/// batch, and with LastBatch::Pad repeats the rows of fields whose first dimension is the number of samples.
using Collate = std::function<Batch(std::vector<Sample>)>;

/// Stacks each field: [sizes of the field] becomes [samples, sizes of the field]. Error(Data) names two samples whose fields, shapes or
/// dtypes differ.
Batch stack(const std::vector<Sample>& samples);

/// Options of pad_and_stack(), and of `data.collate: {name: pad}`.
struct PadOptions {
  std::vector<std::string> fields{};  ///< names of the fields whose first dimension varies; must be given
  double value = 0;                   ///< value of the padding
  int64_t length = 0;                 ///< size of the first dimension in every batch; 0: size in the longest sample
  int64_t multiple_of = 1;            ///< the length is rounded up to a multiple, which limits the number of different shapes
  static const ConfigTable<PadOptions>& config_table();
};

/// Pads the first dimension of the named fields to one length, then stacks. For each of them adds "NAME_mask", int64 [samples, length]: 1
/// for an element of the sample, 0 for padding. Error(Data) if a sample does not have the field or is longer than `length`.
Batch pad_and_stack(std::vector<Sample> samples, const PadOptions& options);

/// Collates by name. A program adds its own with parts.collates.add; `data.collate` selects one.
using CollateRegistry = Registry<Collate>;

/// Adds stack and pad.
void add_builtin_collates(CollateRegistry& registry);

}  // namespace npu_train
