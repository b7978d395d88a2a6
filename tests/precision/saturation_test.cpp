// The scaler on a device where only a flag shows an overflow: a simulated Ascend 910A.
#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include "npu_train/device/backend.hpp"
#include "npu_train/device/sim_npu.hpp"
#include "npu_train/precision/autocast.hpp"
#include "npu_train/precision/finite_check.hpp"
#include "npu_train/precision/grad_scaler.hpp"
#include "npu_train/precision/precision.hpp"
#include "scale_table.hpp"

using namespace npu_train;
using npu_train::testing::check_scale_table;

namespace {

const Device& npu() {
  static const Device device = [] {
    start_sim_npu({.soc = "910A"});
    return Device{"sim_npu", 0};
  }();
  return device;
}

at::Tensor leaf(double value = 1) { return at::full({3}, value).to(npu().c10()).set_requires_grad(true); }

// Returns an fp16 product that overflows if `slope` is large. Its gradient saturates, and so is finite.
at::Tensor loss_of(const at::Tensor& p, double slope) { return (p.to(at::kHalf) * slope).to(at::kFloat).sum(); }

}  // namespace

TEST_CASE("a saturated value looks finite, and the flag reports it") {
  const at::Tensor p = leaf(300);
  clear_overflow_flags({p});
  const at::Tensor y = p.detach().to(at::kHalf) * 300;
  CHECK(at::isfinite(y.cpu()).all().item<bool>());
  std::vector<at::Tensor> gradients = {at::ones({3}).to(npu().c10())};
  CHECK(unscale_and_check(gradients, 0.5).item<float>() == 1);
  clear_overflow_flags({p});
  CHECK(unscale_and_check(gradients, 0.5).item<float>() == 0);
}

TEST_CASE("of gradients that were copied to the host the flag of the device that computed them counts") {
  const at::Tensor p = leaf(300), on_host = at::ones({3});
  const std::vector<c10::Device> computed_on = {npu().c10()};
  clear_overflow_flags({on_host}, computed_on);
  CHECK(unscale_and_check(std::vector{on_host}, 0.5, computed_on).item<float>() == 0);
  (p.detach().to(at::kHalf) * 300).cpu();
  CHECK(unscale_and_check(std::vector{on_host}, 0.5).item<float>() == 0);
  const auto found = unscale_and_check(std::vector{on_host}, 0.5, computed_on);
  CHECK(found.item<float>() == 1);
  CHECK(found.is_cpu());
  clear_overflow_flags({on_host});
  CHECK(unscale_and_check(std::vector{on_host}, 0.5, computed_on).item<float>() == 1);
  clear_overflow_flags({on_host}, computed_on);
  CHECK(unscale_and_check(std::vector{on_host}, 0.5, computed_on).item<float>() == 0);
}

TEST_CASE("a device whose optimizers take no found_inf gets a decision that the host can read") {
  PrecisionOptions options;
  options.mode = "16-mixed";
  const auto p = make_precision(options, npu());
  const at::Tensor w = leaf(2);
  ParameterSet set;
  set.add({.name = "w", .value = w});
  p->prepare(set);
  for (const bool overflows : {false, true}) {
    p->begin_step();
    if (overflows) (w.detach().to(at::kHalf) * 60000).sum();
    w.mutable_grad() = at::ones({3}).to(npu().c10());
    const auto checked = p->unscale_and_check(1);
    CHECK_FALSE(checked.found_inf.is_cpu());
    const auto before = sim_npu_counters().host_reads;
    const auto decision = p->optimizer_decision(checked);
    CHECK(decision.found_inf.is_cpu());
    CHECK(p->last_step_skipped() == overflows);
    p->update(decision);
    CHECK(sim_npu_counters().host_reads == before + 1);
  }
}

TEST_CASE("GradScaler: growth and backoff follow the flag, and one iteration does not leak into the next") {
  const at::Tensor p = leaf(2);
  torch::optim::SGD optimizer({p}, 1e-6);
  GradScaler scaler({.init_scale = 1024, .growth_interval = 2});
  const auto iterate = [&](double slope) {
    optimizer.zero_grad();
    scaler.scale(loss_of(p, slope)).backward();
    const bool taken = scaler.step(optimizer);
    scaler.update();
    return taken;
  };
  (p.detach().to(at::kHalf) * 60000).sum();  // an overflow before the first iteration
  const struct {
    double slope;
    bool taken;
    double scale;
  } table[] = {{2, true, 1024},      {2, true, 2048},     {60000, false, 1024}, {2, true, 1024}, {2, true, 2048},
               {60000, false, 1024}, {60000, false, 512}, {2, true, 512},       {2, true, 1024}};
  for (const auto& row : table) {
    CHECK(iterate(row.slope) == row.taken);
    CHECK(scaler.get_scale() == row.scale);
  }
  CHECK(at::isfinite(p.detach().cpu()).all().item<bool>());
}

TEST_CASE("the table, by the status flag: no value shows the overflow") {
  npu();
  check_scale_table([](const LossScaleOptions& options) { return npu_train::testing::ScalerUnderTest(options, npu()); });
  check_scale_table([](const LossScaleOptions& options) { return npu_train::testing::PrecisionUnderTest(options, npu()); });
}

TEST_CASE("operators of Fp32Ops compute in fp32 on this device too") {
  const at::Tensor x = leaf(2).detach().to(at::kHalf);
  const Fp32Ops ops({"gelu", "exp2"}, npu());
  const auto types = [&](const Fp32Ops& of) {
    const Autocast autocast(npu(), at::kHalf, true, true, CpuLowPrecision::Auto, of);
    return std::pair(at::gelu(x).scalar_type(), at::exp2(x).scalar_type());
  };
  CHECK((types({}) == std::pair(at::kHalf, at::kHalf)));
  CHECK((types(ops) == std::pair(at::kFloat, at::kFloat)));
  CHECK((types({}) == std::pair(at::kHalf, at::kHalf)));
}

TEST_CASE("16-mixed: what overflowed since the start of the step skips it, and nothing earlier") {
  const at::Tensor p = leaf(2);
  ParameterSet set;
  set.add({.name = "p", .value = p});
  const auto precision =
      make_precision({.mode = "16-mixed", .grad_scaler = {.init_scale = 1024, .growth_interval = 2}, .fp32_modules = {}}, npu());
  precision->prepare(set);
  const auto step = [&](double slope) {
    p.mutable_grad().reset();
    precision->begin_step();
    precision->scale_loss(loss_of(p, slope)).backward();
    const auto decision = precision->unscale_and_check(1);
    precision->after_step(decision);
    const bool skipped = precision->last_step_skipped();
    precision->update(decision);
    return skipped;
  };
  CHECK_FALSE(step(2));
  (p.detach().to(at::kHalf) * 60000).sum();  // an overflow between two steps, for example in a validation
  CHECK_FALSE(step(2));
  CHECK(precision->scale() == 2048);
  CHECK(step(60000));
  CHECK(precision->scale() == 1024);
  CHECK_FALSE(step(2));
}

TEST_CASE("auto takes fp16 where the chip has no bf16") { CHECK(make_precision({}, npu())->name() == "16-mixed"); }

TEST_CASE("a chip without bf16 refuses the modes that compute in it") {
  for (const char* mode : {"bf16-mixed", "bf16-true"}) {
    const auto e = npu_train::testing::error_of([&] { make_precision({.mode = mode}, npu()); });
    CHECK((e.kind() == ErrorKind::Usage));
    CHECK(npu_train::testing::has(e.what(), "16-mixed"));
  }
}
