/// The source of facts about a machine: this machine, or a folder that simulates one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "npu_train/core/process.hpp"

namespace npu_train {

/// Free space of a file system.
struct FileSystemSpace {
  uint64_t total = 0;
  uint64_t available = 0;   ///< bytes available to this user
  uint64_t free_files = 0;  ///< UINT64_MAX if the file system does not count them
};

/// A machine to examine. The checks use only this object (and ProcessFacts), so a test can simulate any machine. No function throws because
/// of the state of a machine, and every read is limited.
struct HostView {
  std::filesystem::path root = "/";                                   ///< prefix of all paths
  std::map<std::string, std::string> environment;                     ///< only variables that the doctor knows; others may contain secrets
  std::function<CommandResult(const std::vector<std::string>&)> run;  ///< like run_command()
  std::function<std::optional<FileSystemSpace>(const std::filesystem::path&)> space;  ///< at a path of this machine, `root` included
  std::function<bool(const std::filesystem::path&)> may_use;  ///< whether a file can be opened for reading and writing

  /// Returns this machine, with HOME and the variables of this process that known_variables() (environment_lint.hpp) lists.
  static HostView live();

  /// Returns the path on this machine of `absolute`, a path of the examined machine.
  std::filesystem::path path(std::string_view absolute) const;
  /// Reads the beginning of a regular file (or one of /proc and /sys), at most `max_bytes`. nullopt if it is missing, unreadable, a folder,
  /// a pipe or a device.
  std::optional<std::string> read(std::string_view absolute, size_t max_bytes = size_t{1} << 20) const;
  bool exists(std::string_view absolute) const;
  bool is_folder(std::string_view absolute) const;
  /// Returns the names in a folder, sorted, at most 10,000; empty if it cannot be read.
  std::vector<std::string> list(std::string_view absolute) const;
  /// Resolves the links of `absolute` relative to `root`; returns `absolute` itself if it cannot be resolved.
  std::string resolved(std::string_view absolute) const;

  /// Returns the value of an environment variable; "" if it is not set.
  std::string variable(const std::string& name) const;
  bool has_variable(const std::string& name) const { return environment.contains(name); }
};

}  // namespace npu_train
