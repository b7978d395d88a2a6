#include "testing.hpp"

#include "npu_train/device/offline_model.hpp"

#include <ATen/ATen.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "device/npu/ascendcl.hpp"
#include "environment_variable.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

// Uses tests/fake_ascendcl, in which output [n, k] is the mean of channel k % 3 of image n, plus k.
namespace {

const fs::path kFakeAscendCl = fs::path(NPU_TRAIN_BINARY_DIR) / "tests/fake_ascendcl";

struct FakeNpu {
  TempDir dir;
  EnvironmentVariable library{"NPU_TRAIN_ASCENDCL", kFakeAscendCl.string()};
  EnvironmentVariable trace{"FAKE_ASCENDCL_TRACE", (dir / "trace.txt").string()};

  fs::path om(const std::string& text) const {
    std::ofstream(dir / "m.om") << text;
    return dir / "m.om";
  }
  std::string calls() const {
    std::ostringstream out;
    out << std::ifstream(dir / "trace.txt").rdbuf();
    return out.str();
  }
};

const char* const kNothingLeft = "left: 0 models, 0 descriptions, 0 data sets, 0 buffers, 0 blocks, 0 contexts, 0 devices\n";

at::Tensor means(const at::Tensor& images, int64_t classes) {
  auto mean = images.to(at::kDouble).mean(at::IntArrayRef({2, 3}));
  auto out = at::empty({images.size(0), classes}, at::kDouble);
  for (int64_t k = 0; k < classes; ++k) out.select(1, k).copy_(mean.select(1, k % 3) + static_cast<double>(k));
  return out;
}

std::string failure_of(const fs::path& file, ErrorKind kind) {
  const auto e = error_of([&] { OfflineModel model(file); });
  CHECK(e.kind() == kind);
  return e.what();
}

}  // namespace

TEST_CASE("a model of one batch size: outputs, calls in order, and everything is freed") {
  const FakeNpu npu;
  const auto file = npu.om("input x 0 2 3 4 6\noutput y 0 2 5\n");
  const auto x = at::rand({2, 3, 4, 6});
  {
    OfflineModel model(file);
    CHECK(model.batches() == std::vector<int64_t>{2});
    CHECK(model.inputs()[0].str() == "float32 [batch, 3, 4, 6]");
    CHECK(model.outputs()[0].name == "y");
    CHECK_FALSE(model.inputs()[0].aipp);
    const auto y = model.run({x});
    REQUIRE(y.size() == 1);
    CHECK(at::allclose(y[0].to(at::kDouble), means(x, 5), 1e-6, 1e-6));
    // The same image in channels_last gives the same result.
    CHECK(at::equal(model.run({x.contiguous(at::MemoryFormat::ChannelsLast)})[0], y[0]));
  }
  const auto calls = npu.calls();
  size_t at = 0;
  for (const char* call : {"aclInit", "aclrtSetDevice 0", "aclrtCreateContext", "aclmdlLoadFromFile", "aclmdlGetDesc", "aclrtMalloc 576",
                           "aclrtMalloc 40", "aclrtMemcpy 576", "aclmdlExecute", "aclrtMemcpy 40", "aclrtFree", "aclmdlUnload",
                           "aclrtDestroyContext", "aclrtResetDevice", "aclFinalize", kNothingLeft}) {
    const auto found = calls.find(call, at);
    CHECK_MESSAGE(found != std::string::npos, call);
    at = found == std::string::npos ? at : found;
  }
}

TEST_CASE("several batch sizes: the one that is given is selected, and others are refused") {
  const FakeNpu npu;
  OfflineModel model(npu.om("input x 0 -1 3 2 2\noutput y 0 -1 4\nbatches 8 1 4\n"));
  CHECK(model.batches() == std::vector<int64_t>{1, 4, 8});
  for (const int64_t n : {1, 8, 4}) {
    const auto x = at::rand({n, 3, 2, 2});
    CHECK(at::allclose(model.run({x})[0].to(at::kDouble), means(x, 4), 1e-6, 1e-6));
    CHECK(has(npu.calls(), "aclmdlSetDynamicBatchSize " + std::to_string(n)));
  }
  CHECK(model.batch_for(1) == 1);
  CHECK(model.batch_for(3) == 1);
  CHECK(model.batch_for(7) == 4);
  CHECK(model.batch_for(100) == 8);
  const auto e = error_of([&] { model.run({at::rand({3, 3, 2, 2})}); });
  CHECK(e.kind() == ErrorKind::Usage);
  CHECK(has(e.what(), "a batch of 3; the model was compiled for 1, 4, 8"));
  CHECK(has(error_of([&] {
              model.run({at::rand({4, 3, 2, 3})});
            }).what(),
            "is float32 [batch, 3, 2, 2] on the host; given: float32 [4, 3, 2, 3]"));
  CHECK(has(error_of([&] { model.run({at::zeros({4, 3, 2, 2}, at::kByte)}); }).what(), "given: uint8"));
  CHECK(has(error_of([&] { model.run({}); }).what(), "0 inputs are given; the model has 1"));
}

TEST_CASE("AIPP takes the bytes of images, whatever the network computes in") {
  const FakeNpu npu;
  OfflineModel model(npu.om("input x 1 2 3 5 4\noutput y 1 2 3\naipp 10 20 30 0.5 0.25 0.125\n"));
  REQUIRE(model.inputs()[0].aipp);
  CHECK(model.inputs()[0].str() == "uint8 [batch, 5, 4, 3]");
  CHECK((model.outputs()[0].dtype == at::kHalf));
  const auto x = at::randint(0, 256, {2, 5, 4, 3}, at::kByte);
  const auto normal = (x.to(at::kDouble) - at::tensor({10.0, 20.0, 30.0}, at::kDouble)) * at::tensor({0.5, 0.25, 0.125}, at::kDouble);
  CHECK(at::allclose(model.run({x})[0].to(at::kDouble), means(normal.permute({0, 3, 1, 2}), 3), 1e-3, 1e-3));
}

TEST_CASE("fp16 inputs, threads, a program on the chip, several models") {
  const FakeNpu npu;
  const auto half = npu.dir / "half.om";
  std::ofstream(half) << "input x 1 1 3 2 2\noutput y 0 1 3\n";
  {
    OfflineModel first(npu.om("input x 0 1 3 2 2\noutput y 0 1 3\n"));
    OfflineModel second(half);
    const auto x = at::rand({1, 3, 2, 2}).to(at::kHalf);
    at::Tensor y;
    std::thread([&] { y = second.run({x})[0]; }).join();
    CHECK(at::allclose(y.to(at::kDouble), means(x, 3), 1e-6, 1e-6));
    CHECK(at::allclose(first.run({x.to(at::kFloat)})[0], y));
    auto moved = std::move(second);
    CHECK(at::equal(moved.run({x})[0], y));
  }
  CHECK(has(npu.calls(), kNothingLeft));
  const EnvironmentVariable on_device("FAKE_ASCENDCL_ON_DEVICE", "1");
  OfflineModel model(half);
  CHECK(model.run({at::ones({1, 3, 2, 2}, at::kHalf)})[0][0][0].item<float>() == 1);
}

TEST_CASE("a failure of each call is an error with its code and CANN's message, and leaves no memory") {
  const FakeNpu npu;
  const auto file = npu.om("input x 0 -1 3 2 2\noutput y 0 -1 4\nbatches 1 4\n");
  for (const char* call : {"aclInit", "aclrtGetDeviceCount", "aclrtSetDevice", "aclrtCreateContext", "aclrtGetRunMode", "aclmdlGetDesc",
                           "aclmdlGetInputDimsV2", "aclmdlGetAippType", "aclmdlGetDynamicBatch", "aclmdlGetOutputDims", "aclrtMalloc",
                           "aclmdlAddDatasetBuffer", "aclmdlSetDynamicBatchSize", "aclrtMemcpy", "aclmdlExecute"}) {
    CAPTURE(call);
    fs::remove(npu.dir / "trace.txt");
    const EnvironmentVariable fails("FAKE_ASCENDCL_FAILS", call);
    const auto e = error_of([&] { OfflineModel(file).run({at::rand({4, 3, 2, 2})}); });
    CHECK(e.kind() == ErrorKind::Device);
    CHECK(has(e.what(), call));
    CHECK(has(e.what(), std::string("failed with 500000: EH9999: planted in ") + call + "; hint: npu_tool doctor --explain 500000"));
    CHECK((std::string(call) == "aclInit" || has(npu.calls(), kNothingLeft)));
  }
  const EnvironmentVariable fails("FAKE_ASCENDCL_FAILS", "aclrtMalloc"), code("FAKE_ASCENDCL_CODE", "207001");
  CHECK(has(failure_of(file, ErrorKind::OutOfMemory), "aclrtMalloc of "));
}

TEST_CASE("files that are no models of this kind") {
  const FakeNpu npu;
  CHECK(has(failure_of(npu.dir / "none.om", ErrorKind::Data), "none.om: is not a file"));
  CHECK(has(failure_of(npu.dir.path(), ErrorKind::Data), "is not a file"));
  const auto refused = failure_of(npu.om("PK\n"), ErrorKind::Data);
  CHECK(has(refused, "m.om: "));
  CHECK(has(refused, "failed with 145002: EH9999: the file is not an offline model; hint: compile the model again for this chip"));
  CHECK(has(failure_of(npu.om("input x 0 1 3 -1 -1\noutput y 0 1 4\n"), ErrorKind::Data), "[1, 3, -1, -1]; only the batch may be free"));
  CHECK(has(failure_of(npu.om("input x 0 -1 3 2 2\noutput y 0 -1 4\n"), ErrorKind::Data), "is free, and no sizes are compiled"));
  CHECK(has(failure_of(npu.om("input x 10 1 3 2 2\noutput y 0 1 4\n"), ErrorKind::Data), "the data type 10 of AscendCL"));
  CHECK(has(failure_of(npu.om("input x 0 1 3 2 2\n"), ErrorKind::Data), "1 inputs and 0 outputs"));
  CHECK(has(failure_of(npu.om("input x 0\noutput y 0 1 4\n"), ErrorKind::Data), "has 0 sizes"));
  CHECK(has(failure_of(npu.om("input x 1 2 3 8 8\noutput y 0 2 4\nbytes 1536\n"), ErrorKind::Data),
            "'x' has 1536 bytes, which are not 2 samples of float16 [batch, 3, 8, 8]"));
  CHECK(has(failure_of(npu.om("input x 0 2 3 2 2\noutput y 0 2 4\nbytes 95\n"), ErrorKind::Data), "'x' has 95 bytes"));
  CHECK(has(failure_of(npu.om("input x 0 2 3 2 2\noutput y 0 2 4\nbytes 192\n"), ErrorKind::Data), "'x' has 192 bytes"));
  CHECK(has(npu.calls(), kNothingLeft));
}

TEST_CASE("devices that do not exist") {
  const FakeNpu npu;
  const auto file = npu.om("input x 0 1 3 2 2\noutput y 0 1 4\n");
  const auto e = error_of([&] { OfflineModel model(file, 1); });
  CHECK(e.kind() == ErrorKind::Device);
  CHECK(has(e.what(), "there is no NPU 1; this process sees 0 to 0"));
  const EnvironmentVariable none("FAKE_ASCENDCL_DEVICES", "0");
  CHECK(has(failure_of(file, ErrorKind::Device), "sees none"));
}

TEST_CASE("where libascendcl.so is searched") {
  const EnvironmentVariable home("ASCEND_HOME_PATH", "/opt/cann"), own("NPU_TRAIN_ASCENDCL", "");
  const auto places = npu_train::detail::acl::places();
  CHECK(places[0] == "libascendcl.so");
  CHECK(places[1] == "/opt/cann/lib64/libascendcl.so");
  CHECK(std::find(places.begin(), places.end(), "/usr/local/Ascend/ascend-toolkit/latest/lib64/libascendcl.so") != places.end());
  const EnvironmentVariable named("NPU_TRAIN_ASCENDCL", "/x/mine.so");
  CHECK(npu_train::detail::acl::places() == std::vector<std::string>{"/x/mine.so"});
}
