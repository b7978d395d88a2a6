// The `npu` device. Without torch_npu, the tests check the message about what is missing. As the test device.npu.on_npu, they use
// torch_npu's wheel on sim_cann, on chips of both kinds.
#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/nn.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "device/ascend_chip.hpp"
#include "device/npu/torch_npu.hpp"
#include "device/npu/torch_npu_errors.hpp"
#include "device_under_test.hpp"
#include "environment_variable.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/device/sim_npu.hpp"
#include "npu_train/device/torch_npu_python.hpp"
#include "only_if.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

constexpr const char* kVariable = "NPU_TRAIN_TORCH_NPU";
const std::string kMinor = std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR);

const bool kHasWheel = name_of_device_under_test() == "npu";
bool is_set(const char* name, const std::string& value) {
  const char* set = std::getenv(name);
  return set != nullptr && set == value;
}
const bool kIs910A = is_set("SIM_CANN_SOC", "910A"), kSaturates = kIs910A || is_set("INF_NAN_MODE_FORCE_DISABLE", "1");

std::string refusal(const fs::path& library) {
  const EnvironmentVariable named(kVariable, library.string());
  const auto e = error_of([] { resolve_device("npu"); });
  CHECK((e.kind() == ErrorKind::Device));
  CHECK_FALSE(backend_of({"npu", 0}).is_available());
  return e.what();
}
fs::path unfit(const char* file) { return fs::path(NPU_TRAIN_BINARY_DIR) / "tests/unfit_libraries" / file; }

// Returns the wheel's device of this process, which starts at the first use.
const DeviceBackend& torch_npu() { return backend_of(resolve_device("npu")); }

bool has_torch_npu() {
  const auto places = npu_train::detail::torch_npu_places();
  return std::any_of(places.begin(), places.end(), [](const auto& place) { return fs::exists(place); });
}

void overflow_on(int device) {
  at::full({1}, 60000, at::TensorOptions().dtype(at::kHalf).device(c10::Device(c10::DeviceType::PrivateUse1, static_cast<int8_t>(device))))
      .mul_(2);
}

}  // namespace

TEST_CASE("without the library: where it was looked for, what to install, in which version" *
          only_if(!kHasWheel && !has_torch_npu(), "this machine has torch_npu")) {
  const EnvironmentVariable path("PATH", "/nonexistent"), active("VIRTUAL_ENV", "");
  const auto text = error_of([] { resolve_device("npu"); });
  CHECK((text.kind() == ErrorKind::Device));
  CHECK(has(text.what(), "torch_npu is not found"));
  CHECK(has(text.what(), "python3: there is no such program"));
  CHECK(has(text.what(), "libtorch_npu/lib/libtorch_npu.so"));
  CHECK(has(text.what(), "-m pip install 'torch-npu==" + kMinor + ".*'"));
  CHECK(has(refusal("/nonexistent/folder"), "/nonexistent/folder"));
  const EnvironmentVariable prefix("TORCH_NPU_INSTALL_PREFIX", "/opt/npu");
  CHECK(npu_train::detail::torch_npu_places().front() == "/opt/npu/lib/libtorch_npu.so");
}

TEST_CASE("a library that cannot be loaded, or is another one: each cause has its remedy" *
          only_if(!kHasWheel, "this process has loaded torch_npu")) {
  const auto other = refusal(unfit("of_other_torch.so"));
  CHECK(has(other, "does not fit libtorch " + kMinor));
  CHECK(has(other, "_ZN3c104goneEv"));
  CHECK(has(refusal(unfit("empty.so")), "registers no device npu"));
  TempDir dir;
  std::ofstream(dir / "libtorch_npu.so") << "no library\n";
  CHECK(has(refusal(dir.path()), "cannot be loaded"));
}

TEST_CASE("a wheel of another version is refused before it is loaded" * only_if(!kHasWheel, "this process has loaded torch_npu")) {
  TempDir dir;
  fs::create_directories(dir / "torch_npu/lib");
  fs::create_directories(dir / "torch_npu-2.5.1.post1.dist-info");
  std::ofstream(dir / "torch_npu/lib/libtorch_npu.so") << "no library\n";
  const auto text = refusal(dir / "torch_npu/lib");
  CHECK(has(text, "torch_npu 2.5.1.post1"));
  CHECK(has(text, "does not fit libtorch " + kMinor));
}

TEST_CASE("a library of the simulated CANN that finds another libascendcl.so") {
  const auto e = error_of(
      [] { npu_train::detail::explain_loading("libtorch_npu.so", "/sim/libhccl.so: undefined symbol: _ZN8sim_cann12host_addressEPKvm"); });
  CHECK(has(e.what(), "does not fit the CANN that is loaded"));
}

TEST_CASE("signs of an NPU are its device nodes") {
  TempDir dir;
  CHECK(npu_train::detail::count_ascend_nodes(dir.path()) == 0);
  std::ofstream(dir / "davinci_manager");
  CHECK(npu_train::detail::count_ascend_nodes(dir.path()) == 0);
  std::ofstream(dir / "davinci0");
  CHECK(npu_train::detail::count_ascend_nodes(dir.path()) == 1);
  CHECK(npu_train::detail::count_ascend_nodes("/nonexistent") == 0);
}

TEST_CASE("properties of chips by name") {
  using npu_train::detail::ascend_chip;
  struct Row {
    const char* name;
    bool bf16, saturates, can_choose, graphs;
  };
  for (const Row& row : {Row{"Ascend910A", false, true, false, false}, Row{"Ascend910PremiumA", false, true, false, false},
                         Row{"Ascend910B", false, true, false, false}, Row{"Ascend910B1", true, false, true, true},
                         Row{"Ascend910B4-1", true, false, true, true}, Row{"Ascend910_9392", true, false, true, true},
                         Row{"Ascend310P3", false, true, false, true}, Row{"Ascend310B1", true, true, false, true},
                         Row{"Ascend950", true, false, false, true}}) {
    CAPTURE(row.name);
    const auto chip = ascend_chip(row.name);
    REQUIRE(chip.has_value());
    CHECK(chip->bf16 == row.bf16);
    CHECK(chip->saturates == row.saturates);
    CHECK(chip->can_choose == row.can_choose);
    CHECK(chip->graphs == row.graphs);
  }
  CHECK_FALSE(ascend_chip("Abacus1").has_value());
  CHECK_FALSE(ascend_chip("").has_value());
}

TEST_CASE("a chip that is not known is taken for a new one, and reported; one without a name for an old one") {
  std::string said;
  const ScopedLogTee tee([&](LogLevel, std::string_view message) { said += message; });
  CHECK_FALSE(npu_train::detail::assumed_chip("").bf16);
  CHECK(npu_train::detail::assumed_chip("").saturates);
  CHECK(npu_train::detail::assumed_chip("Ascend310P3").saturates);
  CHECK(said.empty());
  CHECK(npu_train::detail::assumed_chip("Ascend2050").bf16);
  CHECK_FALSE(npu_train::detail::assumed_chip("Ascend2050").saturates);
  CHECK(has(said, "Ascend2050"));
}

TEST_CASE("INF_NAN_MODE: a chip that can choose saturates when it is forced, half a wish is refused" *
          only_if(!kHasWheel, "torch_npu has read these variables")) {
  using npu_train::detail::ascend_chip;
  using npu_train::detail::saturates_here;
  const auto a2 = *ascend_chip("Ascend910B3"), first = *ascend_chip("Ascend910A");
  CHECK_FALSE(saturates_here(a2));
  const EnvironmentVariable off("INF_NAN_MODE_ENABLE", "0");
  CHECK(has(error_of([&] { saturates_here(a2); }).what(), "INF_NAN_MODE_FORCE_DISABLE"));
  CHECK(saturates_here(first));
  const EnvironmentVariable forced("INF_NAN_MODE_FORCE_DISABLE", "1");
  CHECK(saturates_here(a2));
}

TEST_CASE("the devices are available: by name, by index, for auto" * only_if(kHasWheel, "only device.npu.on_npu has torch_npu")) {
  CHECK(torch_npu().is_available());
  CHECK(torch_npu().count() == 2);
  CHECK(resolve_device("npu:1").c10() == c10::Device(c10::DeviceType::PrivateUse1, 1));
  CHECK(resolve_device("auto").str() == "npu:0");
  CHECK((error_of([] { resolve_device("npu:2"); }).kind() == ErrorKind::Device));
  CHECK(device_of(at::ones({1}).to(resolve_device("npu:1").c10()).device()).str() == "npu:1");
}

TEST_CASE("one NPU per process: the simulator is refused in addition to it" * only_if(kHasWheel, "only device.npu.on_npu has torch_npu")) {
  torch_npu();
  const auto e = error_of([] { start_sim_npu({}); });
  CHECK((e.kind() == ErrorKind::Device));
  CHECK(has(e.what(), "torch_npu"));
}

TEST_CASE("every device is seeded, saved and set" * only_if(kHasWheel, "only device.npu.on_npu has torch_npu")) {
  torch_npu();
  seed_everything(41);
  for (int i = 0; i < 2; ++i) CHECK(torch_npu().generator({"npu", i}).current_seed() == 41);
  const auto state = rng_state();
  REQUIRE(state.tensors.count("npu:1") == 1);
  seed_everything(42);
  CHECK_FALSE(at::equal(rng_state().tensors.at("npu:1"), state.tensors.at("npu:1")));
  set_rng_state(state);
  CHECK(at::equal(rng_state().tensors.at("npu:1"), state.tensors.at("npu:1")));
  const RandomState here({resolve_device("npu:1").c10()});
  seed_everything(43);
  { const RandomState::Scope again(here); }
  CHECK(torch_npu().generator({"npu", 1}).current_seed() == 43);
}

TEST_CASE("memory: of the chip in total, and what torch_npu's allocator has given" *
          only_if(kHasWheel, "only device.npu.on_npu has torch_npu")) {
  CHECK(torch_npu().memory({"npu", 1}).total == int64_t{kIs910A ? 32 : 64} << 30);
  torch_npu().reset_peak({"npu", 1});
  const auto before = torch_npu().memory({"npu", 1});
  { const auto block = at::empty({1 << 22}, at::TensorOptions().dtype(at::kByte).device(resolve_device("npu:1").c10())); }
  CHECK(torch_npu().memory({"npu", 1}).peak >= before.peak + (1 << 22));
}

TEST_CASE("capabilities of the chip, and whether an overflow gives inf, as torch_npu has it" *
          only_if(kHasWheel, "only device.npu.on_npu has torch_npu")) {
  const auto chip = torch_npu().capabilities({"npu", 0});
  CHECK(chip.native_bf16 == !kIs910A);
  CHECK(chip.saturating_overflow == kSaturates);
  CHECK_FALSE(chip.skips_on_device);
  CHECK_FALSE(chip.computes_without_units);
  CHECK(npu_train::detail::run_in_torch_npu_python("import torch\nresult = torch.npu.utils.is_support_inf_nan()\n") ==
        (kSaturates ? "False" : "True"));
}

TEST_CASE("the overflow flag: of each device alone, until it is cleared" *
          only_if(kHasWheel && kSaturates, "only device.npu.on_npu_910A and _saturating have it")) {
  torch_npu();
  for (int i = 0; i < 2; ++i) torch_npu().clear_overflow_flag({"npu", i});
  CHECK_FALSE(torch_npu().overflow_flag({"npu", 1}));
  overflow_on(1);
  CHECK(torch_npu().overflow_flag({"npu", 1}));
  CHECK(torch_npu().overflow_flag({"npu", 1}));
  CHECK_FALSE(torch_npu().overflow_flag({"npu", 0}));
  torch_npu().clear_overflow_flag({"npu", 1});
  CHECK_FALSE(torch_npu().overflow_flag({"npu", 1}));
}

TEST_CASE("a module moves to the device and trains there" * only_if(kHasWheel, "only device.npu.on_npu has torch_npu")) {
  torch_npu();
  const auto device = resolve_device("npu").c10();
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 1));
  net->to(device);
  for (const auto& p : net->parameters()) CHECK(p.device() == device);
  const auto loss = net->forward(at::ones({2, 4}).to(device)).sum();
  loss.backward();
  for (const auto& p : net->parameters()) CHECK(p.grad().device() == device);
}
