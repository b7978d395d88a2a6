// How often the host waits for the device in a step. Only a step that may be skipped must wait, to know whether there was an overflow.
#include "testing.hpp"

#include <dlfcn.h>

#include <optional>
#include <sstream>
#include <string>

#include "npu_train/device/sim_npu.hpp"
#include "only_if.hpp"
#include "toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Returns libtorch's switch for the effect of the host's waiting for CUDA (torch.cuda.set_sync_debug_mode: 0 nothing, 1 a warning, 2 an
/// error). Found by name, because its header needs the CUDA toolkit. Null without CUDA.
int* cuda_sync_debug_mode() { return static_cast<int*>(::dlsym(RTLD_DEFAULT, "_ZZN3c104cuda13warning_stateEvE14warning_state_")); }

/// Returns how often the host has waited for an NPU of the simulated CANN.
uint64_t waits_of_sim_cann() {
  void* library = ::dlopen("libascendcl.so", RTLD_NOW | RTLD_NOLOAD);
  const auto calls = reinterpret_cast<const char* (*)()>(library == nullptr ? nullptr : ::dlsym(library, "sim_cann_calls"));
  const bool counts = calls != nullptr;
  REQUIRE_MESSAGE(counts, "the CANN of this process does not count");
  std::istringstream lines(calls());
  uint64_t out = 0, times = 0;
  for (std::string name; lines >> name >> times;)
    if (name.starts_with("aclrtSynchronize")) out += times;
  return out;
}

/// In its scope, waiting for a GPU is an error, and waits for simulated NPUs are counted.
class NoWaiting {
 public:
  NoWaiting() : reads_(host_reads()) { set(2); }
  ~NoWaiting() { set(0); }
  NoWaiting(const NoWaiting&) = delete;
  NoWaiting& operator=(const NoWaiting&) = delete;
  uint64_t waits() const { return host_reads() - reads_; }

 private:
  static uint64_t host_reads() {
    const auto& kind = device_under_test().kind;
    return kind == "sim_npu" ? sim_npu_counters().host_reads : kind == "npu" ? waits_of_sim_cann() : 0;
  }
  static void set(int mode) {
    if (device_under_test().kind == "cuda") {
      int* const switched = cuda_sync_debug_mode();
      REQUIRE_MESSAGE(switched != nullptr, "this libtorch hides its sync debug mode");
      *switched = mode;
    }
  }
  uint64_t reads_;
};

}  // namespace

TEST_CASE("a step that cannot be skipped is queued without waiting") {
  for (const char* mode : {"32-true", "bf16-mixed", "bf16-true"}) {
    for (const char* optimizer : {"sgd", "adamw"}) {
      CAPTURE(mode);
      CAPTURE(optimizer);
      Toy toy(mode, optimizer);
      toy.with_ema();
      auto step = toy.step({.clip_value = 1.0});
      const auto batch = toy_batch();
      step.run({batch});  // the first step initialises
      {
        const NoWaiting no_waiting;
        for (int i = 0; i < 3; ++i) CHECK(step.run({batch, batch}).taken);
        CHECK(no_waiting.waits() == 0);
      }
    }
  }
}

TEST_CASE("in the loop a step reads the numbers of the one before, and waits for nothing else") {
  struct Watch final : Callback {
    std::optional<NoWaiting> no_waiting;
    int64_t steps = 0;
    uint64_t waits = 0;
    void on_step_end(TrainLoop&, const StepReport& report) override {
      ++steps;
      CHECK(report.attempt == steps - 1);
      if (report.attempt == 1) no_waiting.emplace();
      if (report.attempt == 8) {
        waits = no_waiting->waits();
        no_waiting.reset();
      }
    }
  };
  Toy toy("bf16-mixed", "adamw");
  toy.train = toy_data(80);
  const auto& kind = device_under_test().kind;
  if (kind == "npu") toy.data.finish = [](Batch batch) { return pin(batch); };  // pinned, because a copy from other memory waits
  const auto watch = std::make_shared<Watch>();
  auto loop = toy.loop({.max_epochs = 1, .gradient_clip_val = 1.0});
  loop->add_callback(watch);
  loop->fit();
  CHECK(watch->steps == 10);
  // sim_npu counts all copies, also queued ones; sim_cann counts waits for the event of the numbers, which has passed long before.
  CHECK(watch->waits == (kind.ends_with("npu") ? 7 : 0));
}

TEST_CASE("a step that may be skipped waits once, for the overflow flag" *
          only_if(name_of_device_under_test().ends_with("npu"), "waits are counted on NPUs alone")) {
  Toy toy("16-mixed");
  auto step = toy.step();
  const auto batch = toy_batch();
  step.run({batch});
  const NoWaiting counter;
  CHECK(step.run({batch}).taken);
  CHECK(counter.waits() == 1);
}
