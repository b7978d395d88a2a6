#include "testing.hpp"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "npu_train/base/file_backed_memory.hpp"
#include "npu_train/device/host_arena.hpp"
#include "npu_train/device/host_blocks.hpp"
#include "npu_train/device/live_bytes.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

struct Watcher final : HostBlockWatcher {
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override { seen.push_back(bytes); }
  void reportOutOfMemory(int64_t bytes, size_t, size_t, c10::Device) override { refused = bytes; }
  std::vector<int64_t> seen;
  int64_t refused = 0;
};

// Returns what this process writes to stderr while `fn` runs; libtorch's log goes there.
std::string on_stderr(const std::function<void()>& fn) {
  std::fflush(stderr);
  const int before = ::dup(STDERR_FILENO);
  std::FILE* file = std::tmpfile();
  ::dup2(::fileno(file), STDERR_FILENO);
  fn();
  std::fflush(stderr);
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  std::string out(static_cast<size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  out.resize(std::fread(out.data(), 1, out.size(), file));
  std::fclose(file);
  return out;
}

}  // namespace

TEST_CASE("the end of an older block is no complaint on stderr") {
  at::Tensor before = at::zeros({1 << 10});
  CHECK(on_stderr([&] {
          const LiveBytes live;
          before.reset();
        }) == "");
}

TEST_CASE("blocks are reported to the watcher of their thread, and to no other") {
  const auto watcher = std::make_shared<Watcher>();
  at::Tensor of_scope;
  {
    const HostBlocks blocks;
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, watcher);
    of_scope = at::empty({1000}, at::kByte);
    std::thread([] { const auto other = at::empty({2000}, at::kByte); }).join();
    { const auto gone = at::empty({3000}, at::kByte); }
    CHECK((watcher->seen == std::vector<int64_t>{1000, 3000, -3000}));
    CHECK_THROWS(at::empty({int64_t{1} << 60}, at::kByte));
    CHECK(watcher->refused == int64_t{1} << 60);
  }
  of_scope.reset();  // its end is not seen, because there is no watcher now
  CHECK(watcher->seen.size() == 3);
}

TEST_CASE("the allocator of before is back after the last scope, in whichever order they end; raw blocks and the arena's too") {
  auto* before = c10::GetCPUAllocator();
  {
    auto a = std::make_optional<HostBlocks>(), b = std::make_optional<HostBlocks>();
    CHECK(c10::GetCPUAllocator() != before);
    a.reset();
    CHECK(c10::GetCPUAllocator() != before);
    void* raw = c10::GetCPUAllocator()->raw_allocate(100);
    c10::GetCPUAllocator()->raw_deallocate(raw);
  }
  CHECK(c10::GetCPUAllocator() == before);
  const HostArena arena;
  at::Tensor large;
  const auto in_use = HostArena::stats().in_use;
  {
    const LiveBytes live;
    large = at::empty({1 << 20}, at::kByte);
    CHECK(live.now() == 1 << 20);
    void* raw = c10::GetCPUAllocator()->raw_allocate(1 << 20);
    CHECK(live.now() == 2 << 20);
    c10::GetCPUAllocator()->raw_deallocate(raw);
    CHECK(live.now() == 1 << 20);
  }
  CHECK(HostArena::stats().in_use == in_use + (1 << 20));
  large.reset();
  CHECK(HostArena::stats().in_use == in_use);
}

TEST_CASE("memory in files is reported like other memory, and its scopes, those of the arena and of reports end in any order") {
  const TempDir dir;
  const HostArena arena;
  auto* const before = c10::GetCPUAllocator();
  auto files = std::make_unique<FileBackedMemory>(dir.path());
  auto live = std::make_unique<LiveBytes>();
  at::Tensor large = at::zeros({1 << 20}), small = at::zeros({16});
  CHECK(live->now() == (4 << 20) + 64);
  CHECK(FileBackedMemory::in_use() == 4 << 20);
  files.reset();
  CHECK(FileBackedMemory::in_use() == 4 << 20);
  const auto in_arena = at::zeros({1 << 20});
  CHECK(live->now() == (8 << 20) + 64);
  {
    const FileBackedMemory again(dir.path());  // below the reporting allocator, which outlives the first scope
    const auto other = at::zeros({1 << 20});
    small = at::zeros({32});
    CHECK(live->now() == (12 << 20) + 128);
    CHECK(FileBackedMemory::in_use() == 8 << 20);
  }
  large.reset();
  CHECK(live->now() == (4 << 20) + 128);
  live.reset();
  {
    const FileBackedMemory third(dir.path());
    const auto other = at::zeros({1 << 20});
    CHECK(FileBackedMemory::in_use() == 4 << 20);
  }
  CHECK(FileBackedMemory::in_use() == 0);
  CHECK(c10::GetCPUAllocator() == before);
}
