// The folder of one step and rank: dump.json, stack.json, construct.json, written as calls come in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "tools/align/dump_node.hpp"

namespace npu_train::detail {

// A JSON object in a file that is a complete document after every flush: each flush overwrites the old end of the document with its members
// and a new end. A process that is killed leaves its flushed members.
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
  int64_t end_ = 0;  // of the members
  bool first_ = true;
};

// Removes the folders of `rank` in the steps from `step` on: what an earlier, longer run left there. Returns their number. Only names are
// read, since other ranks write at the same time.
int remove_later_steps(const std::filesystem::path& dir, int64_t step, int rank);

class DumpFolder {
 public:
  // Makes the folder; what an earlier run left in it is removed. `head`: members of dump.json before "data", as JSON with a comma behind.
  DumpFolder(std::filesystem::path folder, const std::string& head);

  void add(const DumpEntry& entry);
  void flush();
  std::filesystem::path tensors() const { return folder_ / "dump_tensor_data"; }

 private:
  std::filesystem::path folder_;
  JsonStream data_, stack_, construct_;
  int64_t stacks_ = 0;
};

}  // namespace npu_train::detail
