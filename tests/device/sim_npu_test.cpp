#include "testing.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "npu_train/core/log.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/device/sim_npu.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;

namespace {

const SimNpuOptions kOptions{.soc = "910B1", .devices = 2, .hbm = "64MiB"};

// Returns a device, and starts the simulator at the first use. There is one simulator per process, and each test file runs in a process.
at::Device npu(int index = 0) {
  start_sim_npu(kOptions);
  return Device{"sim_npu", index}.c10();
}

at::Tensor on(const at::Tensor& t, int index = 0) { return t.to(npu(index)); }

// Returns whether reading the byte at `p` kills a process.
bool faults(const void* p) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    std::signal(SIGBUS, SIG_DFL);
    volatile char c = *static_cast<const volatile char*>(p);
    ::_exit(c == 0 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS);
}

}  // namespace

TEST_CASE("it is not available until it is named, and auto never takes it") {
  CHECK_FALSE(backend_of({"sim_npu", 0}).is_available());
  CHECK(resolve_device("auto").kind != "sim_npu");
  start_sim_npu(kOptions);
  CHECK(backend_of({"sim_npu", 0}).is_available());
  CHECK(resolve_device("auto").kind != "sim_npu");
  CHECK(resolve_device("sim_npu:1").str() == "sim_npu:1");
  CHECK((error_of([] { resolve_device("sim_npu:2"); }).kind() == ErrorKind::Device));
  CHECK(device_of(npu(1)).str() == "sim_npu:1");
  start_sim_npu(kOptions);  // no effect, because the options are equal
  CHECK(has(error_of([] { start_sim_npu({.soc = "910A"}); }).what(), "other options"));
}

TEST_CASE("operators run on the device and give the host's bits") {
  const at::Tensor a = at::rand({33, 17}), b = at::rand({17, 9});
  const auto before = sim_npu_counters();
  const at::Tensor y = at::relu(at::mm(on(a), on(b)) - 4).sum(0);
  CHECK(y.device() == npu());
  CHECK(y.is_privateuseone());
  CHECK(sim_npu_counters().ops >= before.ops + 4);
  CHECK(at::equal(y.cpu(), at::relu(at::mm(a, b) - 4).sum(0)));
  const auto at_end = sim_npu_counters();
  CHECK(at_end.host_reads > before.host_reads);
  CHECK(at_end.host_read_bytes >= before.host_read_bytes + y.nbytes());
}

TEST_CASE("the host cannot read the device's memory without a copy") {
  const at::Tensor t = on(at::ones({64}));
  CHECK(faults(t.const_data_ptr()));
  CHECK(faults(t.narrow(0, 3, 2).const_data_ptr()));
  CHECK_FALSE(faults(t.cpu().const_data_ptr()));
}

TEST_CASE("an operator refuses tensors of the host or of another device together with those of a device") {
  const at::Tensor t = on(at::ones({3}));
  CHECK_THROWS_WITH(t + at::ones({3}), doctest::Contains("move it first"));
  CHECK_THROWS_WITH(t + on(at::ones({3}), 1), doctest::Contains("same device"));
  CHECK_THROWS_WITH(at::linear(t, at::ones({2, 3})), doctest::Contains("move it first"));
  CHECK_THROWS_WITH(at::batch_norm(t.view({1, 3}), on(at::ones({3}), 1), {}, {}, {}, true, 0.1, 1e-5, false),
                    doctest::Contains("same device"));
  CHECK(at::equal((t + 1).cpu(), at::full({3}, 2.F)));
  CHECK(at::equal((t + at::scalar_tensor(1.F)).cpu(), at::full({3}, 2.F)));  // a number as a tensor
  CHECK(at::equal(on(t, 1).cpu(), at::ones({3})));
}

TEST_CASE("views share memory, changes in place and outputs that grow arrive") {
  at::Tensor t = on(at::arange(12).to(at::kFloat)).view({3, 4});
  t.select(0, 1).t().mul_(10);
  t.transpose(0, 1)[3].fill_(-1);
  at::Tensor expected = at::arange(12).to(at::kFloat).view({3, 4});
  expected.select(0, 1).mul_(10);
  expected.transpose(0, 1)[3].fill_(-1);
  CHECK(at::equal(t.cpu(), expected));
  at::Tensor out = at::empty({0}, t.options());
  at::add_out(out, t, t);
  CHECK((out.sizes() == at::IntArrayRef{3, 4}));
  CHECK(at::equal(out.cpu(), expected * 2));
  t.resize_({5, 4});
  CHECK(at::equal(t.narrow(0, 0, 3).cpu(), expected));
  const auto parts = t.narrow(0, 0, 3).unbind(1);
  CHECK(at::equal(parts[2].cpu(), expected.select(1, 2)));
  CHECK(at::equal(t.narrow(0, 0, 3).index({at::tensor({2, 0})}).cpu(), expected.index({at::tensor({2, 0})})));
  std::vector<at::Tensor> list = {on(at::ones({2})), on(at::ones({3}))};
  at::_foreach_mul_(list, 3.0);
  CHECK(at::equal(list[1].cpu(), at::full({3}, 3.F)));
}

TEST_CASE("memory has a capacity, statistics, and an out-of-memory error that leaves it usable") {
  const Device d{"sim_npu", 1};
  const auto& backend = backend_of(d);
  npu(1);
  const auto start = backend.memory(d).allocated;
  CHECK(backend.memory(d).total == int64_t{64} << 20);
  {
    const at::Tensor t = on(at::ones({1 << 20}), 1);
    CHECK(backend.memory(d).allocated == start + (4 << 20));
    const at::Tensor u = t + 1;  // also counts memory that a kernel of the host has allocated
    CHECK(backend.memory(d).allocated == start + (8 << 20));
    CHECK_THROWS_AS(at::empty({16 << 20}, t.options()), c10::OutOfMemoryError);
    CHECK_THROWS_AS(at::cat(std::vector<at::Tensor>(15, t)), c10::OutOfMemoryError);
    CHECK(backend.memory(d).allocated == start + (8 << 20));
    CHECK(backend.memory({"sim_npu", 0}).allocated < 8 << 20);
  }
  CHECK(backend.memory(d).allocated == start);
  CHECK(backend.memory(d).peak >= start + (8 << 20));
  backend.reset_peak(d);
  CHECK(backend.memory(d).peak == start);
}

TEST_CASE("generators: each device has its own, seeds repeat, states travel") {
  npu();
  seed_everything(5);
  const auto options = at::TensorOptions(npu(0));
  const at::Tensor first = at::rand({8}, options).cpu(), other = at::rand({8}, at::TensorOptions(npu(1))).cpu();
  const auto state = rng_state();
  const at::Tensor second = at::randn({8}, options).cpu();
  CHECK(at::equal(first, other));
  CHECK_FALSE(at::equal(first, second));
  set_rng_state(state);
  CHECK(at::equal(at::randn({8}, options).cpu(), second));
  seed_everything(5);
  CHECK(at::equal(at::empty({8}, options).uniform_().cpu(), first));
  const at::Tensor host = at::rand({4});
  seed_everything(5);
  at::dropout(at::ones({100}, options), 0.5, true);
  CHECK(at::equal(at::rand({4}), host));  // the device has drawn from its own generator
}

TEST_CASE("streams, events and pinned memory") {
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::PrivateUse1);
  const c10::Stream before = guard.getStream(npu(0)), fresh = guard.getNewStream(npu(0));
  CHECK_FALSE(before == fresh);
  {
    const c10::StreamGuard scope(fresh);
    CHECK(guard.getStream(npu(0)) == fresh);
  }
  CHECK(guard.getStream(npu(0)) == before);
  c10::Event one(c10::DeviceType::PrivateUse1, c10::EventFlag::BACKEND_DEFAULT),
      two(c10::DeviceType::PrivateUse1, c10::EventFlag::BACKEND_DEFAULT);
  const auto begin = std::chrono::steady_clock::now();
  one.record(before);
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  two.record(before);
  two.synchronize();
  CHECK(two.query());
  const std::chrono::duration<double, std::milli> outside = std::chrono::steady_clock::now() - begin;
  CHECK(one.elapsedTime(two) >= 3.0);
  CHECK(one.elapsedTime(two) <= outside.count());
  backend_of({"sim_npu", 0}).synchronize({"sim_npu", 0});
  const at::Tensor host = at::ones({16});
  CHECK_FALSE(host.is_pinned());
  CHECK(host.pin_memory().is_pinned());
  CHECK(at::equal(host.pin_memory().to(npu(), /*non_blocking=*/true).cpu(), host));
}

TEST_CASE("new shapes are counted as recompilations") {
  const at::Tensor a = on(at::ones({5, 7}));
  const auto count = [] { return sim_npu_counters().recompilations; };
  at::sinh(a);
  const auto once = count();
  at::sinh(a);
  CHECK(count() == once);
  at::sinh(on(at::ones({5, 8})));
  CHECK(count() == once + 1);
  at::sinh(on(at::ones({5, 8}, at::kHalf)));
  CHECK(count() == once + 2);
}

TEST_CASE("there is no float64, and an operator without a kernel is named once") {
  const at::Tensor d = on(at::ones({3}, at::kDouble));
  CHECK_THROWS_WITH(d + d, doctest::Contains("no fp64"));
  CHECK(at::equal(d.cpu(), at::ones({3}, at::kDouble)));
  CHECK(at::equal(d.to(at::kFloat).cpu(), at::ones({3})));
  std::vector<std::string> said;
  const ScopedLogSink sink([&](LogLevel, std::string_view text) { said.emplace_back(text); });
  const auto fallbacks = [] { return sim_npu_counters().cpu_fallbacks; };
  const auto before = fallbacks();
  CHECK(at::linalg_det(on(at::eye(3))).cpu().item<float>() == 1);
  CHECK(fallbacks() == before + 1);
  REQUIRE(said.size() == 1);
  CHECK(has(said[0], "'_linalg_det.result' has no kernel on the Ascend 910B1"));
  at::linalg_det(on(at::eye(3)));
  CHECK(fallbacks() == before + 2);
  CHECK(said.size() == 1);
}

TEST_CASE("operators that the vendor's list restricts are distinguished from operators without a kernel") {
  std::string said;
  const ScopedLogSink sink([&](LogLevel, std::string_view text) { said += text; });
  const auto before = sim_npu_counters().cpu_fallbacks;
  at::std_mean(on(at::rand({3, 3})), at::OptionalIntArrayRef({0}), 1.0);
  CHECK(has(said, "'std_mean.correction' is not supported on the Ascend 910B1, by the vendor's list"));
  CHECK(sim_npu_counters().cpu_fallbacks == before);
  said.clear();
  const at::Tensor x = on(at::rand({2, 3, 4, 4})).to(at::kBFloat16), scale = on(at::ones({3}));
  at::native_batch_norm(x, scale, scale, {}, {}, true, 0.1, 1e-5);
  at::native_batch_norm(x, scale, scale, {}, {}, true, 0.1, 1e-5);
  CHECK(has(said, "'native_batch_norm' in bf16: the vendor's list for the Ascend contains only fp16|fp32"));
  CHECK(said.find("'native_batch_norm'") == said.rfind("'native_batch_norm'"));
  said.clear();
  const at::Tensor q = on(at::rand({1, 2, 4, 8}));
  at::scaled_dot_product_attention(q, q, q);
  CHECK(said.empty());
  CHECK(sim_npu_counters().cpu_fallbacks == before);
}

TEST_CASE("autocast: products in low precision, norms and exponentials in fp32") {
  const at::Tensor a = on(at::rand({4, 4}));
  namespace ac = at::autocast;
  ac::set_autocast_enabled(c10::DeviceType::PrivateUse1, true);
  ac::set_autocast_dtype(c10::DeviceType::PrivateUse1, at::kHalf);
  const at::Tensor y = at::mm(a, a), conv = at::conv2d(on(at::rand({1, 2, 4, 4})), on(at::rand({3, 2, 1, 1}))), e = at::exp(y);
  const at::Tensor s = at::softmax(y, 1), q = y.view({1, 1, 4, 4}), attention = at::scaled_dot_product_attention(q, q, q);
  ac::set_autocast_enabled(c10::DeviceType::PrivateUse1, false);
  ac::clear_cache();
  CHECK((y.scalar_type() == at::kHalf));
  CHECK((conv.scalar_type() == at::kHalf));
  CHECK((e.scalar_type() == at::kFloat));
  CHECK((s.scalar_type() == at::kFloat));
  CHECK((attention.scalar_type() == at::kHalf));
  CHECK(at::equal(y.cpu(), at::mm(a.cpu().to(at::kHalf).to(at::kFloat), a.cpu().to(at::kHalf).to(at::kFloat)).to(at::kHalf)));
}

TEST_CASE("IEEE 754 is the rule of a 910B") {
  const at::Tensor big = on(at::full({3}, 300.F).to(at::kHalf));
  CHECK(std::isinf((big * big).cpu()[0].item<float>()));
  const auto can = backend_of({"sim_npu", 0}).capabilities({"sim_npu", 0});
  CHECK_FALSE(can.saturating_overflow);
  CHECK((saturating_backend(big.device()) == nullptr && saturating_backend(c10::Device(c10::DeviceType::CPU)) == nullptr));
  CHECK_FALSE(can.skips_on_device);
  CHECK_FALSE(can.computes_without_units);
  CHECK_FALSE(backend_of({"sim_npu", 0}).overflow_flag({"sim_npu", 0}));
}
