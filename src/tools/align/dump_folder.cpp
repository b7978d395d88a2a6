#include "tools/align/dump_folder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "npu_train/core/error.hpp"
#include "npu_train/io/file.hpp"
#include "tools/align/dump_places.hpp"
#include "tools/align/rank_notes.hpp"

namespace npu_train::detail {
namespace {

constexpr size_t kFlushAt = size_t{1} << 16;

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
  throw Error(ErrorKind::Checkpoint, "dump", path.string() + ": " + what + " (" + std::strerror(errno) + ")",
              "free some space, or choose another folder with dump.dir=...");
}

// Creates the folder of a step, and removes the files of an earlier dump from it. Other files in it are kept.
std::filesystem::path emptied(std::filesystem::path folder) {
  std::error_code ignored;
  for (const char* name : {kDumpJson, kDebugJson, "stack.json", "construct.json", kRankNotes})
    std::filesystem::remove(folder / name, ignored);
  std::filesystem::remove_all(folder / "dump_tensor_data", ignored);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  check(!error, ErrorKind::Checkpoint, "dump.dir", folder.string(), ": the folder cannot be created (", error.message(),
        "); hint: choose another one with dump.dir=..., inside a writable folder");
  return folder;
}

}  // namespace

JsonStream::JsonStream(std::filesystem::path path, const std::string& head, std::string tail)
    : path_(std::move(path)), tail_(std::move(tail)), pending_(head) {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd_ < 0) fail(path_, "cannot be opened for writing");
  flush();
}

JsonStream::~JsonStream() { ::close(fd_); }

int remove_later_steps(const std::filesystem::path& dir, int64_t step, int rank) {
  int removed = 0;
  std::error_code error, ignored;
  for (std::filesystem::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    const auto number = number_after(it->path().filename().string(), "step");
    if (!number || *number < step) continue;
    const auto folder = rank_folder(it->path(), rank);
    if (description_in(folder).empty() && !std::filesystem::exists(folder / kRankNotes, ignored)) continue;
    std::filesystem::remove_all(folder, ignored);
    ++removed;
  }
  return removed;
}

void JsonStream::add(const std::string& key, const std::string& value) {
  pending_ += (first_ ? "\n " : ",\n ") + json_string(key) + ": " + value;
  first_ = false;
  if (pending_.size() >= kFlushAt) flush();
}

void JsonStream::flush() {
  if (pending_.empty()) return;
  const std::string text = pending_ + tail_;
  for (size_t done = 0; done < text.size();) {
    const auto n = ::pwrite(fd_, text.data() + done, text.size() - done, end_ + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(path_, "cannot be written");
    done += static_cast<size_t>(n);
  }
  end_ += static_cast<int64_t>(pending_.size());
  pending_.clear();
}

DumpFolder::DumpFolder(std::filesystem::path folder, const std::string& head, bool named_values)
    : folder_(emptied(std::move(folder))),
      data_(folder_ / (named_values ? kDebugJson : kDumpJson), "{" + head + "\n\"data\": {", "\n}}\n") {
  if (named_values) return;
  stack_.emplace(folder_ / "stack.json", "{", "\n}\n");
  construct_.emplace(folder_ / "construct.json", "{", "\n}\n");
}

void DumpFolder::add(const DumpEntry& entry) {
  data_.add(entry.name, to_json(entry.content));
  if (construct_) construct_->add(entry.name, entry.parent.empty() ? "null" : json_string(entry.parent));
  if (stack_ && !entry.stack.empty())
    stack_->add(std::to_string(stacks_++), "[[" + json_string(entry.name) + "], [" + json_string(entry.stack) + "]]");
}

void DumpFolder::flush() {
  data_.flush();
  if (construct_) construct_->flush();
  if (stack_) stack_->flush();
}

}  // namespace npu_train::detail
