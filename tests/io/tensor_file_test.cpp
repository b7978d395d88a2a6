#include "testing.hpp"

#include "npu_train/io/tensor_file.hpp"

#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "io/archives.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/npy.hpp"
#include "npu_train/io/pickle.hpp"
#include "only_if.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

const std::vector<std::pair<at::ScalarType, std::string>> kTensorTypes = {
    {at::kDouble, "float64"}, {at::kFloat, "float32"}, {at::kHalf, "float16"}, {at::kBFloat16, "bfloat16"}, {at::kLong, "int64"},
    {at::kInt, "int32"},      {at::kShort, "int16"},   {at::kChar, "int8"},    {at::kByte, "uint8"},        {at::kBool, "bool"}};

// Reads all elements in logical order, `piece` at a time.
at::Tensor read_all(const TensorFile& file, int64_t piece) {
  auto out = at::empty(file.sizes(), file.dtype());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  for (int64_t first = 0; first < file.numel(); first += piece)
    file.read(first, std::min(piece, file.numel() - first), to + first * static_cast<int64_t>(out.element_size()));
  return out;
}

at::Tensor read_in_order(const TensorFile& file, int64_t piece) {
  auto out = at::empty_strided(file.sizes(), file.strides(), file.dtype());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  for (int64_t first = 0; first < file.numel(); first += piece)
    file.read_storage_order(first, std::min(piece, file.numel() - first), to + first * static_cast<int64_t>(out.element_size()));
  return out;
}

// Returns the exit status of the Python of the development environment, or else of the system's; -1 if a signal ended it.
int run_python(const std::string& arguments) {
  const auto own = fs::path(NPU_TRAIN_SOURCE_DIR) / ".venv/bin/python";
  const int status = std::system(("'" + (fs::exists(own) ? own.string() : "python3") + "' " + arguments).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool python_has_torch() {  // looks for the packages without importing them, which would take seconds
  return run_python("-c 'from importlib.util import find_spec as f; exit(not (f(\"torch\") and f(\"numpy\")))' 2> /dev/null") == 0;
}

std::string open_error(const fs::path& path) {
  const auto e = error_of([&] { TensorFile::open(path); });
  CHECK(e.kind() == ErrorKind::Data);
  CHECK(has(e.what(), path.string()));
  return e.what();
}

}  // namespace

TEST_CASE("what save_pt and save_npy write is read in pieces of any size") {
  const TempDir dir;
  for (const auto& [type, type_name] : kTensorTypes) {
    CAPTURE(type_name);
    for (const auto& t : {ramp({2, 3, 5}, type), ramp({}, type), ramp({7}, type), at::empty({0, 3}, type), at::empty({2, 0}, type)}) {
      save_pt(dir / "a.pt", t, Durability::Renamed);
      std::vector<fs::path> paths = {dir / "a.pt"};
      if (type != at::kBFloat16) {
        save_npy(dir / "a.npy", t, Durability::Renamed);
        paths.push_back(dir / "a.npy");
      }
      for (const auto& path : paths) {
        const auto file = TensorFile::open(path);
        CHECK((file.dtype() == type));
        CHECK(at::IntArrayRef(file.sizes()) == t.sizes());
        CHECK(file.numel() == t.numel());
        CHECK(file.streams());
        CHECK(file.is_dense());
        for (const int64_t piece : {1, 4, 1000}) {
          CHECK(at::equal(read_all(file, piece), t));
          CHECK(at::equal(read_in_order(file, piece), t));
        }
      }
      CHECK(at::equal(load_pth(dir / "a.pt").tensors.at(0).second, t));
    }
  }
}

TEST_CASE("save_pt copies only what must be copied and writes what the tensor means") {
  const TempDir dir;
  const auto base = ramp({4, 6});
  for (const auto& t : {base.t(), base.select(1, 2), base.slice(0, 1, 3), base.expand({2, 4, 6}), at::_neg_view(base)}) {
    save_pt(dir / "a.pt", t);
    const auto file = TensorFile::open(dir / "a.pt");
    CHECK(file.streams());
    CHECK(at::equal(read_all(file, 5), t.contiguous()));
  }
  save_pt(dir / "leaf.pt", at::ones({2}).requires_grad_());
  CHECK_FALSE(load_pth(dir / "leaf.pt").tensors.at(0).second.requires_grad());
  const auto first = save_pt(dir / "a.pt", base), second = save_pt(dir / "b.pt", base);
  CHECK(first.bytes == fs::file_size(dir / "a.pt"));
  CHECK(first.checksum == second.checksum);
  for (const auto type : {at::kComplexFloat, at::kFloat8_e4m3fn, at::kUInt16}) {
    const auto e = error_of([&] { save_pt(dir / "c.pt", at::empty({2}, type)); });
    CHECK(e.kind() == ErrorKind::Usage);
  }
  CHECK(error_of([&] { save_pt(dir / "c.pt", at::Tensor()); }).kind() == ErrorKind::Usage);
  CHECK(error_of([&] { save_pt(dir / "no folder" / "c.pt", base); }).kind() == ErrorKind::Checkpoint);
  CHECK_FALSE(fs::exists(dir / "c.pt"));
}

TEST_CASE("Python reads what is written here, and its files are read" *
          only_if(python_has_torch(), "there is no Python with torch and numpy")) {
  const TempDir dir;
  fs::create_directory(dir / "cpp");
  for (const auto& [type, name] : kTensorTypes) {
    save_pt(dir / "cpp" / (name + "_2x3.pt"), ramp({2, 3}, type));
    save_pt(dir / "cpp" / (name + "_.pt"), ramp({}, type));
    save_pt(dir / "cpp" / (name + "_4x0.pt"), ramp({4, 0}, type));
  }
  save_pt(dir / "cpp" / "float32_300x1x70000.pt", ramp({300, 1, 70000}));
  const auto script = (fs::path(NPU_TRAIN_SOURCE_DIR) / "tests/io/pt_files.py").string();
  REQUIRE(run_python("'" + script + "' '" + dir.path().string() + "'") == 0);

  const auto t = ramp({2, 3, 2, 2});
  int read = 0;
  for (const auto& entry : fs::directory_iterator(dir / "python")) {
    if (entry.is_directory()) continue;
    const auto name = entry.path().filename().string();
    CAPTURE(name);
    const auto file = TensorFile::open(entry.path());
    for (const int64_t piece : {1, 5, 100}) CHECK(at::equal(read_all(file, piece), t));
    const bool in_order =
        name.find("channels_last") == std::string::npos && !has(name, "transposed") && !has(name, "strided") && !has(name, "fortran");
    CHECK(file.streams() == (in_order && !has(name, "packed")));
    CHECK(file.is_dense() == (name != "strided.pt"));
    if (file.is_dense()) CHECK(at::equal(read_in_order(file, 5), t));
    ++read;
  }
  CHECK(read == 13);
  int refused = 0;
  for (const auto& entry : fs::directory_iterator(dir / "python" / "refused")) {
    const auto message = open_error(entry.path());
    CAPTURE(message);
    CHECK(has(message.substr(message.find(entry.path().string()) + entry.path().string().size()), entry.path().stem().string()));
    ++refused;
  }
  CHECK(refused == 15);
}

TEST_CASE("two files of one order are read in it, of different orders not") {
  const TempDir dir;
  const auto t = ramp({2, 3, 4, 5});
  const auto bytes = [](const at::Tensor& x) { return std::string(static_cast<const char*>(x.const_data_ptr()), x.nbytes()); };
  const auto claim = [&](const std::string& stride) {
    TensorClaim out;
    out.size = "(K\x02K\x03K\x04K\x05t";
    out.stride = stride;
    out.storage_size = "Kx";  // size 120
    return pickle(out.ops());
  };
  const std::string nhwc("(K<K\1K\x0fK\3t"), nchw("(K<K\x14K\x05K\x01t");
  write_bytes(dir / "nhwc.pt", torch_archive(claim(nhwc), bytes(t.permute({0, 2, 3, 1}).contiguous())));
  write_bytes(dir / "nchw.pt", torch_archive(claim(nchw), bytes(t)));
  save_npy(dir / "nchw.npy", t.to(at::kDouble));
  const auto last = TensorFile::open(dir / "nhwc.pt"), first = TensorFile::open(dir / "nchw.pt"), npy = TensorFile::open(dir / "nchw.npy");
  CHECK(at::equal(read_all(last, 7), t));
  CHECK(at::equal(read_in_order(last, 7), t));
  CHECK(at::equal(read_in_order(last, 120), t));
  CHECK_FALSE(last.streams());
  CHECK(last.is_dense());
  CHECK(last.same_order_as(TensorFile::open(dir / "nhwc.pt")));
  CHECK_FALSE(last.same_order_as(first));
  CHECK(first.same_order_as(npy));
  save_pt(dir / "other.pt", ramp({2, 3, 20}));
  CHECK_FALSE(first.same_order_as(TensorFile::open(dir / "other.pt")));
  save_pt(dir / "longer.pt", ramp({3, 3, 4, 5}));  // has the same strides
  CHECK_FALSE(first.same_order_as(TensorFile::open(dir / "longer.pt")));

  // A step of 2 leaves holes; a step of 0 uses elements twice.
  TensorClaim holes;
  holes.size = "K\x03\x85";
  holes.stride = "K\x02\x85";
  write_bytes(dir / "holes.pt", torch_archive(pickle(holes.ops()), bytes(ramp({6}))));
  const auto open = TensorFile::open(dir / "holes.pt");
  CHECK_FALSE(open.is_dense());
  CHECK_FALSE(open.same_order_as(open));
  CHECK(at::equal(read_all(open, 2), ramp({6}).slice(0, 0, 6, 2)));
  float one = 0;
  CHECK(error_of([&] { open.read_storage_order(0, 1, &one); }).kind() == ErrorKind::Usage);
  TensorClaim twice;
  twice.stride = std::string("K\0K\x01\x86", 5);
  write_bytes(dir / "twice.pt", torch_archive(pickle(twice.ops()), bytes(ramp({6}))));
  const auto rows = TensorFile::open(dir / "twice.pt");
  CHECK_FALSE(rows.is_dense());
  CHECK(at::equal(read_all(rows, 4), at::stack({ramp({3}), ramp({3})})));
}

TEST_CASE("a tensor that begins inside its storage, stored and packed") {
  const TempDir dir;
  TensorClaim claim;
  claim.offset = "K\x02";
  claim.size = "K\x02K\x02\x86";
  const auto storage = ramp({6});
  const std::string bytes(static_cast<const char*>(storage.const_data_ptr()), storage.nbytes());
  for (const int method : {0, 8}) {
    for (const bool turned : {false, true}) {
      CAPTURE(method);
      CAPTURE(turned);
      claim.stride = turned ? "K\x01K\x02\x86" : "K\x02K\x01\x86";
      write_bytes(dir / "a.pt", zip({{"a/data.pkl", pickle(claim.ops())}, {"a/data/0", bytes, method}}));
      const auto file = TensorFile::open(dir / "a.pt");
      const auto rows = storage.slice(0, 2, 6).reshape({2, 2}), expected = turned ? rows.t() : rows;
      for (const int64_t piece : {1, 3, 4}) {
        CHECK(at::equal(read_all(file, piece), expected));
        CHECK(at::equal(read_in_order(file, piece), expected));
      }
    }
  }
}

TEST_CASE("extents of one may have any stride") {
  const TempDir dir;
  TensorClaim claim;
  claim.size = "(K\x01K\x06K\x01t";
  claim.stride = "(" + integer_op(INT64_MAX) + std::string("K\x01K\0t", 5);
  write_bytes(dir / "a.pt", torch_archive(pickle(claim.ops())));
  const auto file = TensorFile::open(dir / "a.pt");
  CHECK(file.streams());
  save_pt(dir / "b.pt", ramp({1, 6, 1}));
  CHECK(file.same_order_as(TensorFile::open(dir / "b.pt")));
}

TEST_CASE("ranges outside the tensor are refused") {
  const TempDir dir;
  save_pt(dir / "a.pt", ramp({6}));
  const auto file = TensorFile::open(dir / "a.pt");
  float out[8] = {};
  const std::pair<int64_t, int64_t> ranges[] = {{0, 7}, {6, 1}, {7, 0}, {-1, 2}, {3, -1}, {1, INT64_MAX}, {INT64_MAX, 1}, {INT64_MIN, 1}};
  for (const auto& range : ranges) {
    CHECK(error_of([&] { file.read(range.first, range.second, out); }).kind() == ErrorKind::Usage);
    CHECK(error_of([&] { file.read_storage_order(range.first, range.second, out); }).kind() == ErrorKind::Usage);
  }
  file.read(6, 0, nullptr);
  file.read(4, 2, out);
  CHECK(out[1] == 1.25f);
}

TEST_CASE("a flipped byte is found when all is read at once") {
  const TempDir dir;
  for (const char* name : {"plain", "packed", "nhwc"}) {
    TensorClaim claim;
    if (std::string(name) == "nhwc") claim.stride = "K\x01K\x02\x86";
    const std::string data(24, '\7');
    auto content = zip({{"a/data.pkl", pickle(claim.ops())}, {"a/data/0", data, std::string(name) == "packed" ? 8 : 0}});
    const auto crc = raw(static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(data.data()), 24)));
    content[content.rfind(crc)] ^= 1;  // the CRC in the directory
    const auto file = TensorFile::open(write_bytes(dir / "a.pt", content));
    float out[6];
    const auto e = error_of([&] { file.read(0, 6, out); });
    CHECK(e.kind() == ErrorKind::Data);
    CHECK(has(e.what(), "CRC-32"));
  }
}

TEST_CASE("bools are 0 or 1") {
  const TempDir dir;
  TensorClaim claim;
  claim.storage = "torch\nBoolStorage\n";
  write_bytes(dir / "a.pt", torch_archive(pickle(claim.ops()), std::string("\0\1\2\xff\0\x80", 6)));
  const auto file = TensorFile::open(dir / "a.pt");
  unsigned char out[6];
  file.read(0, 6, out);
  CHECK(std::string(out, out + 6) == std::string("\0\1\1\1\0\1", 6));
  file.read(2, 2, out);
  CHECK(out[0] == 1);
}

TEST_CASE("folders, pipes and missing files are refused at once") {
  const TempDir dir;
  fs::create_directory(dir / "a.pt");
  CHECK(has(open_error(dir / "a.pt"), "folder"));
  REQUIRE(::mkfifo((dir / "b.pt").c_str(), 0600) == 0);
  CHECK(has(open_error(dir / "b.pt"), "not a regular file"));
  open_error(dir / "c.pt");
  write_bytes(dir / "d.pt", "");
  CHECK(has(open_error(dir / "d.pt"), "empty"));
}

TEST_CASE("a file that becomes shorter is an Error") {
  const TempDir dir;
  save_npy(dir / "a.npy", ramp({1000}));
  const auto file = TensorFile::open(dir / "a.npy");
  fs::resize_file(dir / "a.npy", 1000);
  std::vector<float> out(1000);
  CHECK(error_of([&] { file.read(0, 1000, out.data()); }).kind() == ErrorKind::Data);
}

TEST_CASE("reads of several threads") {
  const TempDir dir;
  const auto t = ramp({50, 40});
  TensorClaim claim;
  claim.size = "K2K(\x86";
  claim.stride = "K\x01K2\x86";
  claim.storage_size = "M\xd0\x07";
  const auto turned = t.t().contiguous();
  write_bytes(dir / "a.pt",
              torch_archive(pickle(claim.ops()), std::string(static_cast<const char*>(turned.const_data_ptr()), turned.nbytes())));
  const auto file = TensorFile::open(dir / "a.pt");
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int64_t piece = 1 + i; piece < 100; piece += 13) wrong += at::equal(read_all(file, piece), t) ? 0 : 1;
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}
