// Every optimizer in every dtype, on every device, compared with its formula in double precision. The sizes are below, at and above the
// width of a vector unit.
#include "testing.hpp"

#include <torch/types.h>

#include <cmath>
#include <memory>
#include <sstream>
#include <vector>

#include "device_under_test.hpp"
#include "npu_train/device/torch_npu_python.hpp"
#include "npu_train/optim/optimizers.hpp"
#include "only_if.hpp"

using namespace npu_train;
using npu_train::testing::device_under_test;

namespace {

constexpr double kLr = 0.125, kDecay = 0.0625, kBeta1 = 0.75, kBeta2 = 0.875, kEps = 1e-3;

at::Tensor in_double(const at::Tensor& t) { return t.detach().cpu().to(at::kDouble); }

// A parameter and its state. Each function applies the formula of a step to them.
struct Formula {
  at::Tensor p, g, first, second;  // `first`, `second`: momentum, or mean and mean of squares
  double step = 0;

  void sgd(double momentum, double decay, bool nesterov) {
    g = g + decay * p;
    if (momentum == 0) return void(p = p - kLr * g);
    first = momentum * first + g;
    p = p - kLr * (nesterov ? g + momentum * first : first);
  }
  void adam(double decay, bool decoupled, bool lamb) {
    if (!lamb && decoupled) p = p * (1 - kLr * decay);
    if (!lamb && !decoupled) g = g + decay * p;
    step += 1;
    first = kBeta1 * first + (1 - kBeta1) * g;
    second = kBeta2 * second + (1 - kBeta2) * g * g;
    auto r = first / (1 - std::pow(kBeta1, step)) / ((second / (1 - std::pow(kBeta2, step))).sqrt() + kEps);
    if (lamb) r = r + decay * p;
    p = p - kLr * (lamb ? p.norm() / r.norm() : at::ones({}, at::kDouble)) * r;
  }
};

struct OptimizerCase {
  const char* name;
  std::function<std::unique_ptr<Optimizer>(ParameterSet)> make;
  std::function<void(Formula&)> apply;
};

std::vector<OptimizerCase> cases() {
  std::vector<OptimizerCase> out;
  const auto sgd = [&](const char* name, double momentum, double decay, bool nesterov) {
    out.push_back({name,
                   [=](ParameterSet s) {
                     return std::make_unique<Sgd>(std::move(s),
                                                  SgdOptions{.lr = kLr, .momentum = momentum, .weight_decay = decay, .nesterov = nesterov});
                   },
                   [=](Formula& f) { f.sgd(momentum, decay, nesterov); }});
  };
  sgd("sgd", 0, 0, false);
  sgd("sgd with decay", 0, kDecay, false);
  sgd("sgd with momentum", 0.75, 0, false);
  sgd("sgd with momentum and decay", 0.75, kDecay, false);
  sgd("sgd with nesterov", 0.75, kDecay, true);
  const std::vector<double> betas = {kBeta1, kBeta2};
  for (const double decay : {0.0, kDecay}) {
    out.push_back({"adam",
                   [=](ParameterSet s) {
                     return std::make_unique<Adam>(std::move(s),
                                                   AdamOptions{.lr = kLr, .betas = betas, .eps = kEps, .weight_decay = decay});
                   },
                   [=](Formula& f) { f.adam(decay, false, false); }});
    out.push_back({"adamw",
                   [=](ParameterSet s) {
                     return std::make_unique<AdamW>(std::move(s),
                                                    AdamWOptions{.lr = kLr, .betas = betas, .eps = kEps, .weight_decay = decay});
                   },
                   [=](Formula& f) { f.adam(decay, true, false); }});
    out.push_back({"lamb",
                   [=](ParameterSet s) {
                     return std::make_unique<Lamb>(std::move(s),
                                                   LambOptions{.lr = kLr, .betas = betas, .eps = kEps, .weight_decay = decay});
                   },
                   [=](Formula& f) { f.adam(decay, false, true); }});
  }
  return out;
}

// Returns the largest difference between the stored and the expected values, relative to the allowed difference: half a unit in the last
// place of the stored dtype, plus the rounding of the arithmetic, which is at least in fp32, on numbers of the size of `operands`.
double distance(const at::Tensor& stored, const at::Tensor& expected, const at::Tensor& operands) {
  const auto type = stored.scalar_type();
  const double stored_to = type == at::kHalf       ? 0x1.04p-11
                           : type == at::kBFloat16 ? 0x1.04p-8
                                                   : 0,
               smallest = type == at::kHalf ? 4e-8 : 1e-30;
  const double computed_to = type == at::kDouble ? 1e-14 : 5e-7;
  return ((in_double(stored) - expected).abs() / (stored_to * expected.abs() + computed_to * operands + smallest)).max().item<double>();
}

at::Tensor slot(const Optimizer& o, const char* name) {
  const auto state = o.state();
  const auto found = state.tensors.find(std::string(name) + "/w");
  return found == state.tensors.end() ? at::Tensor() : found->second;
}

}  // namespace

TEST_CASE("every optimizer, dtype and size gives its formula, rounded once") {
  const auto& device = device_under_test();
  at::set_num_threads(1);
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    if (type == at::kDouble && device.c10().is_privateuseone()) continue;  // the device has no fp64
    for (const auto& c : cases())
      for (const int64_t size : {8, 16, 33, 1000}) {
        CAPTURE(std::string(c.name));
        CAPTURE(size);
        CAPTURE(std::string(c10::toString(type)));
        torch::manual_seed(static_cast<uint64_t>(size));
        ParameterSet set;
        const at::Tensor w = torch::randn({size}).to(type).to(device.c10()).requires_grad_();
        set.add({.name = "w", .value = w});
        const auto o = c.make(set);
        const bool sgd = o->name() == "sgd";
        for (int t = 0; t < 3; ++t) {
          w.mutable_grad() = torch::randn({size}).to(type).to(device.c10());
          const auto first = slot(*o, sgd ? "momentum" : "exp_avg"), second = slot(*o, "exp_avg_sq");
          Formula f{.p = in_double(w), .g = in_double(w.grad()), .first = {}, .second = {}, .step = static_cast<double>(t)};
          if (first.defined()) f.first = in_double(first);
          if (second.defined()) f.second = in_double(second);
          const at::Tensor before = f.p.abs(), gradient = f.g.abs() + before;
          const at::Tensor first_before = first.defined() ? f.first.abs() : before, second_before = second.defined() ? f.second : before;
          c.apply(f);
          o->step();
          // On an NPU, sgd without momentum and adam first add their decay to the gradient, which rounds it.
          const bool rounds_twice = device.c10().is_privateuseone() && (o->name() == "adam" || (sgd && !first.defined()));
          const double again = rounds_twice && type == at::kBFloat16 ? 1e4 : rounds_twice && type == at::kHalf ? 1e3 : 0;
          CHECK(distance(w, f.p, before + 1 + again * kLr * (gradient + 1)) < 1);
          if (first.defined()) CHECK(distance(first, f.first, first_before + (1 + again) * gradient) < 1);
          if (second.defined()) CHECK(distance(second, f.second, second_before + (1 + again) * gradient * gradient) < 1);
        }
      }
  }
}

TEST_CASE("a step that overflowed leaves parameters and state of every dtype bit-identical, at every size") {
  const auto& device = device_under_test();
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16})
    for (const auto& c : cases())
      for (const int64_t size : {8, 33}) {
        CAPTURE(std::string(c.name));
        CAPTURE(std::string(c10::toString(type)));
        ParameterSet set;
        const at::Tensor w = torch::randn({size}).to(type).to(device.c10()).requires_grad_();
        set.add({.name = "w", .value = w});
        const auto o = c.make(set);
        w.mutable_grad() = torch::randn({size}).to(type).to(device.c10());
        o->step();
        std::vector<at::Tensor> before = {w.detach().clone()};
        for (const auto& [name, tensor] : o->state().tensors) before.push_back(tensor.clone());
        w.mutable_grad().fill_(std::numeric_limits<float>::infinity());
        for (const auto& place : {device.c10(), c10::Device(at::kCPU)}) {
          o->step({.inv_scale = {}, .found_inf = torch::ones({}).to(place)});
          CHECK(at::equal(w, before[0]));
          size_t i = 1;
          for (const auto& [name, tensor] : o->state().tensors) CHECK(at::equal(tensor, before[i++]));
        }
      }
}

TEST_CASE("a step by gradients whose squares fp16 cannot hold is as large as any other") {
  const auto& device = device_under_test();
  for (const auto type : {at::kHalf, at::kBFloat16})
    for (const std::string name : {"adam", "adamw", "lamb"}) {
      CAPTURE(name);
      CAPTURE(std::string(c10::toString(type)));
      ParameterSet set;
      const at::Tensor w = torch::ones({100}, at::TensorOptions(device.c10()).dtype(type)).requires_grad_();
      set.add({.name = "w", .value = w});
      OptimizerRegistry registry("optimizer");
      add_builtin_optimizers(registry);
      const auto o = registry.make({.name = name, .options = {{"lr", 0.01}, {"weight_decay", 0.0}}}, "optimizer", set);
      for (int t = 1; t <= 10; ++t) {
        w.mutable_grad() = torch::full_like(w.detach(), 1e-5);
        o->step();
        // In each step, the mean of the gradients divided by the root of the mean of their squares is 1; lamb multiplies it by its trust
        // ratio.
        const double expected = name == "lamb" ? std::pow(0.99, t) : 1 - 0.01 * t;
        CHECK((in_double(w) - expected).abs().max().item<double>() < (type == at::kHalf ? 0x1p-11 : 0x1p-8) * t + 2e-4 * t);
      }
    }
}

TEST_CASE("twenty steps give the numbers of torch_npu's own fused optimizers" *
          only_if(npu_train::testing::name_of_device_under_test() == "npu", "only device npu has torch_npu")) {
  const auto& device = device_under_test();
  constexpr int64_t kSize = 1000;
  const auto gradient = [](int t) { return (at::arange(kSize, at::kFloat) * (t + 1)).cos(); };
  struct Row {
    const char* theirs;
    std::function<std::unique_ptr<Optimizer>(ParameterSet)> ours;
  };
  const std::vector<Row> rows = {
      {"NpuFusedAdamW([p], lr=0.01, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1)",
       [](ParameterSet s) {
         return std::make_unique<AdamW>(std::move(s), AdamWOptions{.lr = 0.01, .betas = {0.9, 0.99}, .eps = 1e-6, .weight_decay = 0.1});
       }},
      {"NpuFusedAdam([p], lr=0.01, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1)",
       [](ParameterSet s) {
         return std::make_unique<Adam>(std::move(s), AdamOptions{.lr = 0.01, .betas = {0.9, 0.99}, .eps = 1e-6, .weight_decay = 0.1});
       }},
      {"NpuFusedSGD([p], lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True)",
       [](ParameterSet s) {
         return std::make_unique<Sgd>(std::move(s), SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
       }},
  };
  for (const auto& row : rows) {
    CAPTURE(std::string(row.theirs));
    std::istringstream theirs(npu_train::detail::run_in_torch_npu_python(std::string(R"(
import torch, torch_npu
from torch_npu.optim import NpuFusedAdam, NpuFusedAdamW, NpuFusedSGD
start = torch.arange(1000.)
p = torch.nn.Parameter(start.sin().npu())
optimizer = )") + row.theirs + R"(
for t in range(20):
    gradient = (start * (t + 1)).cos().npu()
    if p.grad is None: p.grad = gradient
    else: p.grad.copy_(gradient)
    optimizer.step()
result = ' '.join(map(str, p.detach().cpu().tolist()))
)"));
    ParameterSet set;
    const at::Tensor w = at::arange(kSize, at::kFloat).sin().to(device.c10()).requires_grad_();
    set.add({.name = "w", .value = w});
    const auto o = row.ours(set);
    for (int t = 0; t < 20; ++t) {
      w.mutable_grad() = gradient(t).to(device.c10());
      o->step();
    }
    const at::Tensor ours = in_double(w);
    double largest = 0, value = 0;
    int64_t count = 0;
    for (; theirs >> value; ++count) largest = std::max(largest, std::abs(ours[count].item<double>() - value));
    CHECK(count == kSize);
    CHECK(largest < 2e-6);
  }
}
