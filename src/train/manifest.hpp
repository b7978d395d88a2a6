// The manifest of a checkpoint: a JSON text that lists the files and ends with a checksum of itself.
#pragma once

#include <exception>
#include <filesystem>
#include <string>

#include "npu_train/core/error.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train::detail {

constexpr const char* kCheckpointWhere = "Checkpoint";
constexpr const char* kOlderCheckpoint = "take an older checkpoint of the run: --resume auto passes over damaged ones";

// Calls `fn`; converts every Error that a damaged file causes to Error(Checkpoint).
template <class Fn>
auto reading_checkpoint(Fn&& fn) -> decltype(fn()) {
  try {
    return fn();
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Checkpoint) throw;
    throw Error(ErrorKind::Checkpoint, kCheckpointWhere, e.what(), kOlderCheckpoint, std::current_exception());
  }
}

std::string manifest_path(const std::string& dir);
// Returns the text of a manifest, whose last member is a checksum of all text before it.
std::string sealed(const Json& manifest);
// Checks format, checksum and counters, and that every needed file is listed once. Error(Checkpoint) if a check fails.
Json read_manifest(const std::string& dir);
// Returns the entry {name, bytes, checksum} of a file.
Json file_entry(const std::string& name, const WrittenFile& written);
// Verifies the size and checksum of a file, and returns its path; `file` is its entry in the manifest.
std::filesystem::path verified_path(const std::string& dir, const Json& file);
// Compares the counters in a manifest of format 1, which has no checksum, with those in the state. Error(Checkpoint) if they differ.
void check_counters(const std::string& dir, const Json& manifest);

}  // namespace npu_train::detail
