/// Checkpoints on disk. A checkpoint is a folder: one safetensors file per part of the run (model, optimizer, ema, ...), the plain values
/// in state.json, the resolved configuration in config.yaml, and manifest.json, which lists every file with its checksum and is written
/// last. The folder appears under its name by a rename, complete or not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

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

/// Format that this version writes; it reads this one and older. 2: the manifest ends with a checksum of itself.
constexpr int64_t kCheckpointFormat = 2;

/// The contents of a manifest, available without reading the tensors.
struct CheckpointMeta {
  int64_t format = kCheckpointFormat;
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

/// Writes `state` as the folder `dir`, replacing a folder of that name. Error(Checkpoint) when the disk is full or not writable; an
/// existing checkpoint at `dir` is then unchanged. So it is if `before_commit`, which is called when all is written, throws.
void save_checkpoint(const std::string& dir, const RunState& state, const CheckpointMeta& meta, const ConfigNode& config,
                     const std::function<void()>& before_commit = {});

/// Reads the manifest alone. Error(Checkpoint) when there is none, it is damaged, incomplete, or its format is newer.
CheckpointMeta read_checkpoint_meta(const std::string& dir);

/// Reads and verifies all files (size and checksum). Error(Checkpoint) names the first bad file. `parts` empty: all.
RunState load_checkpoint(const std::string& dir, const std::vector<std::string>& parts = {});

/// The configuration that the checkpoint was written with.
ConfigNode load_checkpoint_config(const std::string& dir);

/// Verifies every file against the manifest without keeping the tensors. Error(Checkpoint) when one is missing or changed. The counters of
/// a manifest of format 1, which has no checksum, must be those of state.json.
void verify_checkpoint(const std::string& dir);

}  // namespace npu_train
