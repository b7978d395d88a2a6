#include "npu_train/base/file_backed_memory.hpp"

#include <c10/core/CPUAllocator.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/host.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

thread_local FileBackedMemory* scope_of_thread = nullptr;
thread_local bool probed = false;  // see is_reached()

int64_t free_disk_bytes(const std::string& folder) {
  std::error_code error;
  const auto space = std::filesystem::space(folder, error);
  return error ? 0 : static_cast<int64_t>(std::min<uintmax_t>(space.available, FileBackedMemory::kAlways));
}

[[noreturn]] void refuse(const std::string& folder, size_t bytes, const std::string& why) {
  throw Error(ErrorKind::OutOfMemory, "FileBackedMemory",
              str_cat(folder, ": no file of ", human_bytes(static_cast<double>(bytes)), " for a tensor of the model: ", why, " (",
                      human_bytes(static_cast<double>(free_disk_bytes(folder))), " of the disk are free)"),
              "set TMPDIR to a folder of a disk with room for the model of each rank of this machine, or use a machine with more memory");
}

// Maps a new file, which is already unlinked on return and is freed with the mapping.
void* map_new_file(const std::string& folder, size_t bytes) {
  // Without this check, the kernel would end the process with SIGXFSZ.
  rlimit largest{};
  if (::getrlimit(RLIMIT_FSIZE, &largest) == 0 && largest.rlim_cur < bytes) refuse(folder, bytes, "ulimit -f allows no file of this size");
  auto name = folder + "/npu_train_XXXXXX";
  const int file = ::mkostemp(name.data(), O_CLOEXEC);
  if (file < 0) refuse(folder, bytes, std::generic_category().message(errno));
  ::unlink(name.c_str());
  // Checks the free space first, because a failing posix_fallocate() would temporarily take the space of other programs.
  int error = free_disk_bytes(folder) < static_cast<int64_t>(bytes) ? ENOSPC : EINTR;
  while (error == EINTR) error = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  void* out = MAP_FAILED;
  if (error == 0) {
    out = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (out == MAP_FAILED) error = errno;
  }
  ::close(file);
  if (error != 0) refuse(folder, bytes, std::generic_category().message(error));
  return out;
}

void* map_shared_pages(size_t bytes) {
  constexpr size_t kPages = 16 << 20;
  static const int pages = [] {
    const int file = ::memfd_create("npu_train", MFD_CLOEXEC);
    return file >= 0 && ::ftruncate(file, kPages) == 0 ? file : -1;
  }();
  auto* const out = static_cast<char*>(::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  bool mapped = out != MAP_FAILED;
  for (size_t at = 0; mapped && at < bytes; at += kPages)
    mapped = ::mmap(out + at, std::min(kPages, bytes - at), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, pages, 0) != MAP_FAILED;
  if (mapped) return out;
  const int error = errno;
  if (out != MAP_FAILED) ::munmap(out, bytes);
  throw Error(
      ErrorKind::OutOfMemory, "FileBackedMemory",
      str_cat("no addresses for a tensor of ", human_bytes(static_cast<double>(bytes)), ": ", std::generic_category().message(error)),
      "raise `ulimit -v` or the kernel's vm.max_map_count");
}

}  // namespace

// One instance per process, never destroyed: tensors may be freed after main().
class FileBackedMemory::Allocator final : public c10::Allocator {
 public:
  static Allocator& instance() {
    static auto* one = new Allocator;
    return *one;
  }

  c10::DataPtr allocate(size_t bytes) override {
    if (std::exchange(probed, false)) return {nullptr, c10::Device(c10::kCPU)};
    auto* const scope = scope_of_thread;
    if (scope == nullptr || bytes < scope->least()) return under_.load()->allocate(bytes);
    void* p = MAP_FAILED;
    if (scope->shares_pages_)
      p = map_shared_pages(bytes);
    else if (!scope->in_file(bytes))
      p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool in_file = p == MAP_FAILED;
    if (in_file) {
      p = map_new_file(scope->folder_, bytes);
      scope->taken_ += bytes;
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      blocks_.emplace(p, Block{bytes, in_file});
      in_use_ += in_file ? bytes : 0;
    }
    c10::profiledCPUMemoryReporter().New(p, bytes);
    return {p, p, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  size_t in_use() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return in_use_;
  }

  void install() {
    const std::lock_guard<std::mutex> lock(users_mutex_);
    if (users_++ > 0 || is_reached()) return;
    under_ = c10::GetCPUAllocator();
    c10::SetCPUAllocator(this, kPriorityOfFiles);
  }
  // Removes this allocator. If another one was installed on top meanwhile, this one stays below it, and has no effect without a scope.
  void remove() {
    const std::lock_guard<std::mutex> lock(users_mutex_);
    if (--users_ == 0 && c10::GetCPUAllocator() == this) c10::SetCPUAllocator(under_, kPriorityOfFiles);
  }

 private:
  struct Block {
    size_t bytes = 0;
    bool in_file = false;
  };

  static constexpr uint8_t kPriorityOfFiles = 100;  // same as the arena's, so that the allocator that is installed last is on top

  // Returns whether the installed allocator already forwards to this one. Installing this one again would then make it call itself.
  static bool is_reached() {
    probed = true;
    const auto block = c10::GetCPUAllocator()->allocate(FileBackedMemory::kLeast);
    return !std::exchange(probed, false);
  }

  // Frees a block of this allocator or of the one below. This function receives both, because blocks of raw_allocate() do not carry their
  // deleter.
  static void release(void* p) {
    auto& own = instance();
    Block block;
    {
      const std::lock_guard<std::mutex> lock(own.mutex_);
      if (const auto found = own.blocks_.find(p); found != own.blocks_.end()) {
        block = found->second;
        own.blocks_.erase(found);
        own.in_use_ -= block.in_file ? block.bytes : 0;
      }
    }
    if (block.bytes == 0) return own.under_.load()->raw_deleter()(p);
    c10::profiledCPUMemoryReporter().Delete(p);
    ::munmap(p, block.bytes);
  }

  std::atomic<c10::Allocator*> under_ = c10::GetCPUAllocator();
  std::mutex users_mutex_;
  int users_ = 0;
  std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;
  size_t in_use_ = 0;
};

FileBackedMemory::FileBackedMemory(std::string folder, int64_t keep_free)
    : folder_(std::move(folder)), keep_free_(keep_free), outer_(scope_of_thread) {
  Allocator::instance().install();
  scope_of_thread = this;
}

FileBackedMemory::FileBackedMemory(SharedPages /*pages*/) : FileBackedMemory(std::string()) { shares_pages_ = true; }

FileBackedMemory::~FileBackedMemory() {
  scope_of_thread = outer_;
  Allocator::instance().remove();
}

const FileBackedMemory* FileBackedMemory::current() { return scope_of_thread; }

size_t FileBackedMemory::in_use() { return Allocator::instance().in_use(); }

std::string FileBackedMemory::folder_on_disk(const std::vector<std::string>& folders) {
  constexpr uint32_t kInMemory[] = {0x01021994 /* tmpfs */, 0x858458F6 /* ramfs */};
  for (const auto& folder : folders) {
    struct statfs disk {};
    if (folder.empty() || ::statfs(folder.c_str(), &disk) != 0 || ::access(folder.c_str(), W_OK | X_OK) != 0) continue;
    const auto type = static_cast<uint32_t>(disk.f_type);
    if (std::find(std::begin(kInMemory), std::end(kInMemory), type) == std::end(kInMemory)) return folder;
  }
  return "";
}

std::string FileBackedMemory::temporary_folder(const std::string& another) {
  std::error_code none;
  return folder_on_disk({std::filesystem::temp_directory_path(none).string(), "/var/tmp", another});
}

int64_t FileBackedMemory::room() const {
  const int64_t disk = free_disk_bytes(folder_), memory = keep_free_ == kAlways ? 0 : std::max<int64_t>(0, free_host_bytes() - keep_free_);
  return memory > kAlways - disk ? kAlways : memory + disk;
}

bool FileBackedMemory::in_file(size_t bytes) const {
  return keep_free_ == kAlways || free_host_bytes() - static_cast<int64_t>(std::min<size_t>(bytes, kAlways)) < keep_free_;
}

}  // namespace npu_train
