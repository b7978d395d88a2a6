// The folder of one step and rank: dump.json, stack.json and construct.json, written call by call; or only debug.json with named values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "tools/align/dump_node.hpp"

namespace npu_train::detail {

// A JSON object in a file that is a complete document after every flush: each flush overwrites the end of the document with new members and
// a new end. If the process is killed, the flushed members are readable.
class JsonStream {
 public:
  // `head` opens the object, `tail` closes it.
  JsonStream(std::filesystem::path path, const std::string& head, std::string tail);
  ~JsonStream();
  JsonStream(const JsonStream&) = delete;
  JsonStream& operator=(const JsonStream&) = delete;

  void add(const std::string& key, const std::string& value);
  void flush();

 private:
  std::filesystem::path path_;
  std::string tail_;
  std::string pending_;
  int fd_ = -1;
  int64_t end_ = 0;  // offset in the file at which the members end
  bool first_ = true;
};

// Removes the folders of `rank` in the steps from `step` on, which an earlier, longer run may have left. Returns the number of removed
// folders. Looks only at the names of files, since other ranks write at the same time.
int remove_later_steps(const std::filesystem::path& dir, int64_t step, int rank);

class DumpFolder {
 public:
  // Creates the folder, and removes an earlier run's files from it. `head`: members of dump.json before "data", as JSON with a trailing
  // comma. `named_values`: the dump has the level debug.
  DumpFolder(std::filesystem::path folder, const std::string& head, bool named_values);

  void add(const DumpEntry& entry);
  void flush();
  std::filesystem::path tensors() const { return folder_ / "dump_tensor_data"; }

 private:
  std::filesystem::path folder_;
  JsonStream data_;
  std::optional<JsonStream> stack_, construct_;  // missing at the level debug
  int64_t stacks_ = 0;
};

}  // namespace npu_train::detail
