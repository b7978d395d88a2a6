/// Files that are complete or absent: written next to their final place, synchronised to the disk, then renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"

namespace npu_train {

/// Durability of a file: the state for which `AtomicFile::commit` waits.
enum class Durability {
  Synced,   ///< the data and the name are on the disk: for files that must survive a crash of the machine
  Renamed,  ///< complete for every process, but after a crash of the machine possibly missing or empty. For thousands of small files that
            ///< can be recreated: synchronising each one would cost more than writing it.
};

/// A file under construction. Until `commit()` only a hidden temporary file in the same folder exists; the destructor removes it. Every
/// failure of the disk (full, quota, read-only, no permission) is an Error(Checkpoint) with path and sizes, and leaves the previous content
/// of `path` unchanged.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path, Durability durability = Durability::Synced);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }

  uint64_t size() const { return size_; }
  /// Returns hash64 of everything written so far.
  uint64_t checksum() const { return hasher_.digest(); }
  const std::filesystem::path& path() const { return path_; }

  /// Synchronises the data to the disk, renames the file to `path`, and synchronises the folder; with Durability::Renamed, only renames.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  Durability durability_;
  int fd_ = -1;
  uint64_t size_ = 0;
  Hasher hasher_;
};

/// Size and content hash of a written file.
struct WrittenFile {
  uint64_t bytes = 0;
  uint64_t checksum = 0;
};

/// Replaces the content of `path` atomically.
WrittenFile write_file_atomic(const std::filesystem::path& path, std::string_view content);

/// Returns the content of a regular file of at most `max_bytes`. Error(`kind`) if it is missing, larger, a folder or unreadable.
std::string read_file(const std::filesystem::path& path, uint64_t max_bytes, ErrorKind kind = ErrorKind::Data);

/// A folder under construction: fill `temporary()`, then `commit()` moves it to `path`. An older folder there is replaced in one step if
/// the file system can exchange names. The destructor removes an uncommitted folder.
class AtomicDirectory {
 public:
  explicit AtomicDirectory(std::filesystem::path path);
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::filesystem::path& temporary() const { return temporary_; }
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
};

/// Creates a folder and its parents. Error(Checkpoint) if that fails.
void make_folder(const std::filesystem::path& folder);

/// True for names that AtomicFile and AtomicDirectory use while writing.
bool is_temporary_name(std::string_view file_name);

/// Removes temporary files and folders that killed processes have left in `folder`: at once if their process ran on this machine and has
/// ended, others after a day. Leftovers whose final name satisfies `mine(name)` are removed in any case. `mine` selects names that only the
/// caller may write (because it holds the folder's lock) and that it is not writing yet. Returns the number of removed files and folders.
int remove_leftovers(const std::filesystem::path& folder, const std::function<bool(std::string_view name)>& mine = {});

/// Returns `folder / name` for an untrusted name. Error(Checkpoint) unless the name is relative and has no "..", and no link in the path
/// leads out of `folder`.
std::filesystem::path safe_join(const std::filesystem::path& folder, std::string_view name);

/// A regular file opened for reading at any offset. Reads are limited to the size of the file when it was opened.
class ReadableFile {
 public:
  explicit ReadableFile(std::filesystem::path path, ErrorKind kind = ErrorKind::Data);
  ~ReadableFile();
  ReadableFile(ReadableFile&& other) noexcept;
  ReadableFile& operator=(ReadableFile&& other) noexcept;

  uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  ErrorKind kind() const { return kind_; }
  /// Reads exactly `bytes` bytes from `offset`; Error(kind) if the file ends before that.
  void read(uint64_t offset, void* out, size_t bytes) const;
  std::string read(uint64_t offset, size_t bytes) const;

 private:
  std::filesystem::path path_;
  ErrorKind kind_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

}  // namespace npu_train
