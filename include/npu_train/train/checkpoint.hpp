/// Checkpoints on disk. A checkpoint is a folder: one safetensors file per part of the run (model, optimizer, ema, ...), the plain values
/// in state.json, the resolved configuration in config.yaml, and manifest.json, which lists every file with its checksum and is written
/// last. The folder appears under its name by a rename, complete or not at all.
///
/// Where ranks divide the state, each writes its slices into files of its own, such as optimizer.rank0003.safetensors, and the manifest
/// lists which elements of which tensor each file has. Any number of ranks can read them, and each reads only its own.
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

/// The state of everything that changes the next step, by part: model, optimizer, scaler, ema, rng, loader, counters ...
using RunState = std::map<std::string, State>;

/// + another name of a tied parameter: a value of the part `model`, which says under which name its tensor is saved.
constexpr const char* kAliasKey = "alias/";

/// Other names of tied tensors of a part, and the names that they are saved under.
std::map<std::string, std::string> aliases_of(const State& part);
/// The tensors of a part; a tied one under each of its names.
NamedTensors tensors_by_every_name(const State& part);

/// A rank's slice of a tensor of the run's state.
struct TensorSlice {
  at::Tensor value;  ///< 1-D: elements [begin, begin + numel) of the tensor, in the order in which `strides` place them in memory
  int64_t begin = 0;
  std::vector<int64_t> sizes;    ///< of the complete tensor
  std::vector<int64_t> strides;  ///< of the complete tensor, which is dense in memory
};

/// The slices of one rank, by part and name.
using StateSlices = std::map<std::string, std::map<std::string, TensorSlice>>;

/// The newest format that this version reads. 2: the manifest ends with a checksum of itself. 3: tensors may be in slices; a checkpoint
/// without slices is written in format 2.
constexpr int64_t kCheckpointFormat = 3;

/// The contents of a manifest, available without reading the tensors.
struct CheckpointMeta {
  int64_t format = 2;  ///< set when the checkpoint is written
  int64_t epoch = 0;
  int64_t global_step = 0;
  int64_t batches_seen = 0;
  int64_t serial = 0;  ///< counts the saves into one folder of checkpoints: the largest was written last
  double score = 0;    ///< value of checkpoint.monitor; NaN when it is not known
  std::string monitor;
  std::string model;    ///< name of the model, for messages
  std::string library;  ///< version of npu_train
  std::string torch;    ///< version of libtorch
  int64_t threads = 0;  ///< CPU threads; another count changes the last bits of sums
  std::string cpu;      ///< instruction set that libtorch used
  std::string device;
  std::string precision;
  std::string config_digest;
  std::string classes;  ///< names of the classes, one a line; may be empty
};

/// The names of the classes, by label; empty if they are not known.
std::vector<std::string> class_names_of(const CheckpointMeta& meta);

/// A checkpoint while it is written: a hidden folder, which commit() renames to `dir`, replacing a folder of that name. Without commit() it
/// is removed. All calls: Error(Checkpoint) if the disk is full or not writable; an existing checkpoint at `dir` is then unchanged.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(const std::string& dir);
  ~CheckpointFolder();
  /// Where the ranks put their slices.
  const std::filesystem::path& temporary() const;
  void write(const RunState& state, const ConfigNode& config);
  /// Lists the slices of a rank; `index` is what write_slices() returned there. Error(Checkpoint) if a file of it is not in the folder.
  void add_slices(const std::string& index);
  /// Writes the manifest and renames the folder, unless `before_commit`, which is called in between, throws.
  void commit(CheckpointMeta meta, const std::function<void()>& before_commit = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Writes the slices of a rank into `folder`, the CheckpointFolder::temporary() of the rank that writes the checkpoint. Returns an index of
/// them for add_slices(). Error(Checkpoint) if this rank cannot see the folder or write to it.
std::string write_slices(const std::filesystem::path& folder, int rank, const StateSlices& slices);

/// Writes `state` as the folder `dir` in one call of each.
void save_checkpoint(const std::string& dir, const RunState& state, const CheckpointMeta& meta, const ConfigNode& config,
                     const std::function<void()>& before_commit = {});

/// Reads the manifest alone. Error(Checkpoint) when there is none, it is damaged, incomplete, or its format is newer.
CheckpointMeta read_checkpoint_meta(const std::string& dir);

/// Reads and verifies the files (size and checksum). Error(Checkpoint) names the first bad file. `parts` empty: all. Tensors in slices are
/// joined. Of those named "<kind>/<parameter>", where `own` has a slice of that parameter in the same memory layout, only that slice is
/// read, as a 1-D tensor; of the parameters of the model those of which `own_model` has one.
RunState load_checkpoint(const std::string& dir, const std::vector<std::string>& parts = {}, const ParameterSet& own = {},
                         const ParameterSet& own_model = {});

/// The configuration that the checkpoint was written with.
ConfigNode load_checkpoint_config(const std::string& dir);

/// Verifies every file against the manifest without keeping the tensors. Error(Checkpoint) when one is missing or changed. The counters of
/// a manifest of format 1, which has no checksum, must be those of state.json.
void verify_checkpoint(const std::string& dir);

}  // namespace npu_train
