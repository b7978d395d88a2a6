#include "testing.hpp"

#include "npu_train/base/file_backed_memory.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <c10/core/CPUAllocator.h>
#include <sys/resource.h>
#include <sys/vfs.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

using namespace npu_train;
using namespace npu_train::testing;

namespace {

constexpr int64_t kMiB = 1 << 20;

at::Tensor of_bytes(int64_t n) { return at::empty({n}, at::kByte); }

// Returns the line of the mapping at this address: "7f1c00000000-7f1c00200000 rw-s 00000000 fe:00 42   /tmp/x (deleted)".
std::string mapping_at(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream range(line);
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    range >> std::hex >> begin >> dash >> end;
    if (wanted >= begin && wanted < end) return line;
  }
  return "";
}

bool in_file(const at::Tensor& tensor, const std::filesystem::path& folder) {
  const auto line = mapping_at(tensor.const_data_ptr());
  return has(line, " rw-s ") && has(line, folder.string() + "/") && has(line, "(deleted)");
}

}  // namespace

TEST_CASE("large tensors of the thread are in files without a name, small ones and those of other threads are not") {
  const TempDir dir;
  const FileBackedMemory files(dir.path());
  constexpr auto kLeast = static_cast<int64_t>(FileBackedMemory::kLeast);
  CHECK(in_file(of_bytes(kLeast), dir.path()));
  const auto large = at::full({kMiB}, 3.0F);
  CHECK(in_file(large, dir.path()));
  CHECK(reinterpret_cast<uintptr_t>(large.const_data_ptr()) % 64 == 0);
  CHECK(std::filesystem::is_empty(dir.path()));
  CHECK_FALSE(in_file(of_bytes(kLeast - 1), dir.path()));
  bool other = true;
  std::thread([&] { other = in_file(of_bytes(4 * kMiB), dir.path()) || FileBackedMemory::current() != nullptr; }).join();
  CHECK_FALSE(other);
  CHECK(FileBackedMemory::current() == &files);
  CHECK(FileBackedMemory::in_use() == 4 * kMiB);
  CHECK(files.taken() == 4 * kMiB + FileBackedMemory::kLeast);
}

TEST_CASE("a tensor outlives the scope, and its file ends with it") {
  const TempDir dir;
  auto* const before = c10::GetCPUAllocator();
  at::Tensor large, view;
  {
    const FileBackedMemory files(dir.path());
    large = at::full({kMiB}, 3.0F);
    view = large.narrow(0, 5, 7);
  }
  CHECK(c10::GetCPUAllocator() == before);
  CHECK(FileBackedMemory::current() == nullptr);
  CHECK_FALSE(in_file(of_bytes(4 * kMiB), dir.path()));
  const auto* address = large.const_data_ptr();
  CHECK(large.sum().item<float>() == 3.0F * kMiB);
  large.reset();
  CHECK(has(mapping_at(address), "(deleted)"));
  std::thread([&] { view.reset(); }).join();
  CHECK_FALSE(has(mapping_at(address), "(deleted)"));
  CHECK(FileBackedMemory::in_use() == 0);
}

TEST_CASE("scopes nest, raw blocks find their way back, and random numbers have the same bits") {
  const TempDir dir, inner_dir;
  const auto draw = [] { return at::randn({3, kMiB}, at::detail::createCPUGenerator(7)); };
  const auto expected = draw();
  const FileBackedMemory files(dir.path());
  CHECK(at::equal(draw(), expected));
  {
    const FileBackedMemory inner(inner_dir.path());
    CHECK(in_file(of_bytes(kMiB), inner_dir.path()));
  }
  CHECK(in_file(of_bytes(kMiB), dir.path()));
  for (const size_t bytes : {size_t{8}, size_t{2 * kMiB}}) {
    auto* const allocator = c10::GetCPUAllocator();
    void* p = allocator->raw_allocate(bytes);
    std::memset(p, 1, bytes);
    CHECK(FileBackedMemory::in_use() == (bytes > 8 ? bytes : 0));
    allocator->raw_deallocate(p);
  }
  CHECK(FileBackedMemory::in_use() == 0);
}

TEST_CASE("memory is used as long as enough of it stays free") {
  const TempDir dir;
  {
    const FileBackedMemory files(dir.path(), /*keep_free=*/0);
    auto tensor = of_bytes(kMiB);
    const auto* address = tensor.const_data_ptr();
    CHECK_FALSE(in_file(tensor, dir.path()));
    CHECK(has(mapping_at(address), " rw-p "));
    tensor.reset();
    CHECK(mapping_at(address) == "");  // its pages were returned to the system
    CHECK(files.taken() == 0);
    CHECK(FileBackedMemory::in_use() == 0);
    CHECK(files.room() > FileBackedMemory(dir.path()).room());
  }
  const FileBackedMemory files(dir.path(), FileBackedMemory::kAlways - 1);
  CHECK(in_file(of_bytes(kMiB), dir.path()));
}

TEST_CASE("without room an error names the folder, the bytes and the remedy; memory is as before") {
  const TempDir dir;
  const auto missing = (dir / "none").string();
  const auto refused = [&](const std::string& folder, int64_t bytes, const std::string& why) {
    const FileBackedMemory files(folder);
    const auto error = error_of([&] { of_bytes(bytes); });
    CHECK(error.kind() == ErrorKind::OutOfMemory);
    for (const auto& part : {folder + ": no file of ", why, std::string("set TMPDIR to a folder")}) {
      CAPTURE(error.what());
      CHECK(has(error.what(), part));
    }
    CHECK(of_bytes(1000).numel() == 1000);
  };
  refused(missing, 2 * kMiB, "2.0 MiB for a tensor of the model: No such file or directory");
  refused(dir.path(), int64_t{1} << 55, "No space left on device");
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto small = rlimit{kMiB, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  refused(dir.path(), 2 * kMiB, "ulimit -f allows no file of this size");
  ::setrlimit(RLIMIT_FSIZE, &before);
  CHECK(FileBackedMemory::in_use() == 0);
  CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("tensors without content share some pages, whatever their size") {
  const auto before = at::full({kMiB}, 1.0F);
  {
    const FileBackedMemory nothing{FileBackedMemory::SharedPages()};
    const auto huge = of_bytes(int64_t{1} << 38);  // exceeds every machine that runs this test
    huge.narrow(0, huge.numel() - kMiB, kMiB).fill_(7);
    const auto other = at::empty({kMiB}, at::kByte);
    CHECK(at::equal(other, at::full({kMiB}, 7, at::kByte)));
    CHECK(FileBackedMemory::in_use() == 0);
    const auto small = at::full({kMiB / 8}, 2.0F);
    huge.narrow(0, 0, kMiB).fill_(9);
    CHECK(at::equal(small, at::full({kMiB / 8}, 2.0F)));
  }
  const auto after = at::full({kMiB}, 3.0F);
  CHECK(at::equal(before, at::full({kMiB}, 1.0F)));
  CHECK(at::equal(after, at::full({kMiB}, 3.0F)));
}

TEST_CASE("a folder in memory is no disk") {
  const TempDir dir;
  constexpr uint32_t kTmpfs = 0x01021994;
  struct statfs disk {};
  REQUIRE(::statfs(dir.path().c_str(), &disk) == 0);
  const bool in_memory = static_cast<uint32_t>(disk.f_type) == kTmpfs;
  CHECK(FileBackedMemory::folder_on_disk({"/dev/shm", "", (dir / "none").string()}) == "");
  CHECK(FileBackedMemory::folder_on_disk({"/dev/shm", dir.path()}) == (in_memory ? "" : dir.path().string()));
}
