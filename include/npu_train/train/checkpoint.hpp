/// Checkpoints on disk. A checkpoint is a folder: one safetensors file per part of the run (model, optimizer, ema, ...), the plain values
/// in state.json, the resolved configuration in config.yaml, and manifest.json, which lists every file with its checksum and is written
/// last. The folder appears under its name by a rename, complete or not at all.
///
/// If the state is sharded, each rank writes its slices into its own files, such as optimizer.rank0003.safetensors, and the manifest lists
/// which elements of which tensors each file contains. Any number of ranks can read them, and each reads only its own slices.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/core/config_node.hpp"
#include "npu_train/io/safetensors.hpp"
#include "npu_train/train/report.hpp"

namespace npu_train {

/// All state that changes the next step, by part: model, optimizer, scaler, ema, rng, loader, counters ...
using RunState = std::map<std::string, State>;

/// Prefix of the values in the part `model` that name tied parameters: the key is `alias/` + the other name, the value is the name of the
/// saved tensor.
constexpr const char* kAliasKey = "alias/";

/// Returns the other names of a part's tied tensors, each with the name under which the tensor is saved.
std::map<std::string, std::string> aliases_of(const State& part);
/// Returns the tensors of a part. A tied tensor appears under each of its names.
NamedTensors tensors_by_every_name(const State& part);

/// A rank's slice of a tensor in the run's state.
struct TensorSlice {
  at::Tensor value;  ///< 1-D: elements [begin, begin + numel) of the tensor, in the order in which `strides` place them in memory
  int64_t begin = 0;
  std::vector<int64_t> sizes;    ///< sizes of the complete tensor
  std::vector<int64_t> strides;  ///< strides of the complete tensor, which is dense in memory
};

/// The slices of one rank, by part and name.
using StateSlices = std::map<std::string, std::map<std::string, TensorSlice>>;

/// The newest format that this version reads. In format 2, the manifest ends with a checksum of itself. In format 3, tensors may be in
/// slices; a checkpoint without slices is still written in format 2.
constexpr int64_t kCheckpointFormat = 3;

/// The contents of a manifest, available without reading the tensors.
struct CheckpointMeta {
  int64_t format = 2;  ///< set when the checkpoint is written
  int64_t epoch = 0;
  int64_t global_step = 0;
  int64_t batches_seen = 0;
  int64_t serial = 0;  ///< number of this save in its folder of checkpoints; the checkpoint with the largest number was written last
  double score = 0;    ///< value of checkpoint.monitor; NaN if it is not known
  std::string monitor;
  std::string model;    ///< name of the model, for messages
  std::string library;  ///< version of npu_train
  std::string torch;    ///< version of libtorch
  int64_t threads = 0;  ///< number of CPU threads; another number changes the last bits of sums
  std::string cpu;      ///< instruction set that libtorch used
  std::string device;
  std::string precision;
  std::string config_digest;
  std::string classes;  ///< names of the classes, one per line; may be empty
};

/// Returns the names of the classes, by label; empty if they are not known.
std::vector<std::string> class_names_of(const CheckpointMeta& meta);

/// A checkpoint that is being written to a hidden folder. commit() renames that folder to `dir` and replaces a folder of that name; without
/// commit() the hidden folder is removed. All calls: Error(Checkpoint) if the disk is full or not writable; an existing checkpoint at `dir`
/// is then unchanged.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(const std::string& dir);
  ~CheckpointFolder();
  /// Returns the hidden folder, to which the ranks write their slices.
  const std::filesystem::path& temporary() const;
  void write(const RunState& state, const ConfigNode& config);
  /// Lists the slices of a rank in the manifest; `index` is the result of write_slices() on that rank. Error(Checkpoint) if one of its
  /// files is incomplete or missing.
  void add_slices(const std::string& index);
  /// Writes the manifest, calls `before_commit`, and renames the folder unless that call threw.
  void commit(CheckpointMeta meta, const std::function<void()>& before_commit = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Writes the slices of a rank into `folder`, the CheckpointFolder::temporary() of the rank that writes the checkpoint. Returns their index
/// for add_slices(). Error(Checkpoint) if this rank cannot see the folder or write to it.
std::string write_slices(const std::filesystem::path& folder, int rank, const StateSlices& slices);

/// Writes a complete checkpoint `dir` through CheckpointFolder.
void save_checkpoint(const std::string& dir, const RunState& state, const CheckpointMeta& meta, const ConfigNode& config,
                     const std::function<void()>& before_commit = {});

/// Reads only the manifest. Error(Checkpoint) if it is missing, damaged or incomplete, or if its format is newer.
CheckpointMeta read_checkpoint_meta(const std::string& dir);

/// Reads the files and verifies their sizes and checksums. Error(Checkpoint) names the first bad file. If `parts` is empty, reads all
/// parts. Joins the slices of a tensor, unless this rank needs only its own slice, which is then a 1-D tensor. For a tensor
/// "<kind>/<parameter>", this is the case if `own` has a slice of that parameter; for a parameter of the model, if `own_model` has a slice
/// of it. In both cases, the parameter must have the memory layout of the saved tensor; otherwise the slices are joined.
RunState load_checkpoint(const std::string& dir, const std::vector<std::string>& parts = {}, const ParameterSet& own = {},
                         const ParameterSet& own_model = {});

/// Reads the configuration with which the checkpoint was written, without model.allow_code.
ConfigNode load_checkpoint_config(const std::string& dir);

/// Verifies every file against the manifest without keeping the tensors. Error(Checkpoint) if one is missing or changed, or if the counters
/// of a manifest of format 1, which has no checksum, differ from those in state.json.
void verify_checkpoint(const std::string& dir);

}  // namespace npu_train
