#include "testing.hpp"

#include <c10/core/GradMode.h>

#include "helpers.hpp"
#include "npu_train/optim/average.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

void move(const ParameterSet& set, int seed) {
  const c10::NoGradGuard no_grad;
  at::manual_seed(static_cast<uint64_t>(seed));
  for (const auto& p : set) p.value.add_(at::randn_like(p.value));
}

}  // namespace

TEST_CASE("the average follows its formula, with and without warm-up") {
  for (const bool warmup : {false, true}) {
    const auto set = example_parameters();
    WeightAverage averaged(set, {.decay = 0.9, .warmup = warmup});
    CHECK(at::equal(averaged.averages()[0].value, set[0].value));
    auto expected = flat(set[0].value);
    for (int n = 1; n <= 120; ++n) {
      move(set, n);
      averaged.update(set);
      const double decay = warmup ? std::min(0.9, (1.0 + n) / (10 + n)) : 0.9;
      expected = decay * expected + (1 - decay) * flat(set[0].value);
    }
    CHECK(averaged.updates() == 120);
    CHECK(largest_difference(averaged.averages()[0].value, expected) < 1e-4);
    CHECK_FALSE(averaged.averages()[0].value.requires_grad());
  }
}

TEST_CASE("equal averages are the means of the parameters, with and without a flag, and count no skipped step") {
  for (const bool flagged : {false, true}) {
    const auto set = example_parameters();
    auto statistics = at::zeros({4});
    WeightAverage averaged(set, {.kind = "swa"}, {{"mean", statistics}});
    CHECK_FALSE(averaged.follows_steps());
    auto sum = Eigen::ArrayXd(Eigen::ArrayXd::Zero(set[0].value.numel()));
    for (int n = 1; n <= 50; ++n) {
      move(set, n);
      sum += flat(set[0].value);
      statistics.fill_(n);
      averaged.update(set, flagged ? found(0) : StepDecision{});
      if (n == 1) CHECK(at::equal(averaged.averages()[0].value, set[0].value));  // nothing is left of the initial values
      const auto before = digest(averaged.state());
      averaged.update(set, found(1));
      CHECK(digest(averaged.state()) == before);
      CHECK(largest_difference(averaged.averages()[0].value, sum / n) < 1e-4);
    }
    CHECK(averaged.updates() == 50);
    CHECK(averaged.state().tensors.at("buffer/mean")[0].item<float>() == 50);
    statistics.fill_(-1);
    averaged.take_buffers();
    CHECK(averaged.state().tensors.at("buffer/mean")[0].item<float>() == -1);

    const auto saved = averaged.state();
    WeightAverage moving(example_parameters(), {}, {{"mean", at::zeros({4})}});
    const auto error = error_of([&] { moving.load_state(saved); });
    CHECK(error.kind() == ErrorKind::Checkpoint);
    CHECK(has(error.what(), "of kind swa"));
    averaged.reset();
    CHECK(averaged.updates() == 0);
    move(set, 99);
    averaged.update(set);
    CHECK(at::equal(averaged.averages()[0].value, set[0].value));
  }
}

TEST_CASE("the average of fp64 parameters is fp64") {
  auto set = example_parameters(at::kDouble);
  set.add({.name = "in.fp32", .value = at::ones({3}).set_requires_grad(true)});
  WeightAverage averaged(set, {.decay = 0.9, .warmup = false});
  std::vector<Eigen::ArrayXd> expected;
  for (const auto& p : set) expected.push_back(flat(p.value));
  for (int n = 1; n <= 20; ++n) {
    move(set, n);
    averaged.update(set);
    for (size_t i = 0; i < set.size(); ++i) expected[i] = 0.9 * expected[i] + 0.1 * flat(set[i].value);
  }
  for (size_t i = 0; i < set.size(); ++i) {
    const auto& average = averaged.averages()[i].value;
    CHECK((average.scalar_type() == set[i].value.scalar_type()));
    CHECK(largest_difference(average, expected[i]) < (average.scalar_type() == at::kDouble ? 1e-13 : 1e-5));
  }
}

TEST_CASE("a skipped step moves nothing and is not counted") {
  const auto set = example_parameters();
  auto statistics = at::randn({4});
  WeightAverage averaged(set, {.decay = 0.5}, {{"mean", statistics}});
  move(set, 1);
  averaged.update(set, found(0));
  const auto before = digest(averaged.state());
  move(set, 2);
  statistics.fill_(std::numeric_limits<float>::quiet_NaN());
  averaged.update(set, found(1));
  CHECK(digest(averaged.state()) == before);
  CHECK(averaged.updates() == 1);
}

TEST_CASE("the update that the device decides on: bit-identical on a skip, else that of the host") {
  at::manual_seed(1);
  const auto layout = at::MemoryFormat::ChannelsLast;
  const std::vector<at::Tensor> start = {at::randn({3, 4}), at::randn({2, 3, 4, 5}).contiguous(layout), at::full({4}, -0.0)};
  const std::vector<at::Tensor> sources = {at::randn({3, 4}), at::randn({2, 3, 4, 5}),
                                           at::full({4}, std::numeric_limits<float>::infinity())};
  std::vector<at::Tensor> targets;
  for (const auto& t : start) targets.push_back(t.clone());
  const auto weight = at::full({}, 0.25);
  npu_train::detail::lerp_unless(targets, sources, weight, at::ones({}));
  for (size_t i = 0; i < 3; ++i) CHECK(at::equal(targets[i].view(at::kInt), start[i].view(at::kInt)));
  npu_train::detail::lerp_unless({targets[0], targets[1]}, {sources[0], sources[1]}, weight, at::zeros({}));
  for (size_t i = 0; i < 2; ++i) CHECK(at::allclose(targets[i], at::lerp(start[i], sources[i], 0.25), 1e-6, 1e-6));
}

TEST_CASE("low-precision parameters are averaged in fp32") {
  const auto set = example_parameters(at::kBFloat16);
  WeightAverage averaged(set, {.decay = 0.999, .warmup = false});
  CHECK((averaged.averages()[0].value.scalar_type() == at::kFloat));
  {
    const c10::NoGradGuard no_grad;
    for (const auto& p : set) p.value.fill_(1);
  }
  WeightAverage fresh(set, {.decay = 0.999, .warmup = false});
  {
    const c10::NoGradGuard no_grad;
    for (const auto& p : set) p.value.fill_(2);
  }
  for (int i = 0; i < 3; ++i) fresh.update(set);
  CHECK(fresh.averages()[1].value[0].item<float>() == doctest::Approx(2 - std::pow(0.999, 3)).epsilon(1e-6));
}

TEST_CASE("the swap gives the model the averages and its buffers, and back, also after an exception") {
  const auto set = example_parameters();
  auto statistics = at::zeros({4});
  auto count = at::zeros({}, at::kLong);
  WeightAverage averaged(set, {.decay = 0.5, .warmup = false}, {{"mean", statistics}, {"count", count}});
  move(set, 1);
  statistics.fill_(1);
  count.fill_(3);
  averaged.update(set);
  move(set, 2);
  statistics.fill_(9);
  count.fill_(8);
  const auto own = digest(set);
  {
    const AverageSwap swap(averaged);
    for (size_t i = 0; i < set.size(); ++i) CHECK(at::equal(set[i].value, averaged.averages()[i].value));
    CHECK(statistics[0].item<float>() == 1);
    CHECK(count.item<int64_t>() == 3);
    CHECK(set[0].value.requires_grad());
  }
  CHECK(digest(set) == own);
  CHECK(statistics[0].item<float>() == 9);
  CHECK(count.item<int64_t>() == 8);
  CHECK_THROWS([&] {
    const AverageSwap swap(averaged);
    throw std::runtime_error("in validation");
  }());
  CHECK(digest(set) == own);
}

TEST_CASE("masters are averaged, the model's low-precision parameters are swapped") {
  const auto masters = example_parameters();
  ParameterSet model;
  for (const auto& p : masters) model.add({.name = p.name, .value = p.value.detach().to(at::kHalf)});
  WeightAverage averaged(masters, {.decay = 0.5, .warmup = false}, {}, model);
  move(masters, 1);
  averaged.update(masters);
  const auto own = digest(model);
  {
    const AverageSwap swap(averaged);
    CHECK(at::equal(model[0].value, averaged.averages()[0].value.to(at::kHalf)));
  }
  CHECK(digest(model) == own);
}

TEST_CASE("a restored state continues bit for bit; one that does not fit is refused") {
  const auto set = example_parameters();
  auto statistics = at::ones({4});
  WeightAverage a(set, {.decay = 0.99}, {{"mean", statistics}});
  for (int i = 0; i < 5; ++i) {
    move(set, i);
    a.update(set);
  }
  WeightAverage b(example_parameters(), {.decay = 0.99}, {{"mean", at::zeros({4})}});
  State saved = a.state();
  for (auto& [key, t] : saved.tensors) t = t.clone();
  b.load_state(saved);
  move(set, 7);
  a.update(set);
  statistics.fill_(1);
  b.update(set);
  CHECK(b.updates() == 6);
  for (size_t i = 0; i < 4; ++i) CHECK(at::equal(a.averages()[i].value, b.averages()[i].value));

  const auto before = digest(b.state());
  auto missing = saved, unknown = saved, shape = saved, count = saved;
  missing.tensors.erase("average/fc.bias");
  unknown.tensors["average/ghost"] = at::ones({1});
  shape.tensors["buffer/mean"] = at::ones({5});
  count.values.erase("updates");
  for (const auto& bad : {missing, unknown, shape, count}) {
    CHECK(error_of([&] { b.load_state(bad); }).kind() == ErrorKind::Checkpoint);
    CHECK(digest(b.state()) == before);
  }
}

TEST_CASE("a share of a run is rounded up to whole epochs, and not beyond by the rounding of numbers") {
  const auto before = [](double start, int64_t length) { return AverageOptions{.start = start}.before_averages(length); };
  CHECK(before(0.75, 4) == 3);
  CHECK(before(0.6, 4) == 3);
  CHECK(before(0, 10) == 0);
  for (int64_t percent = 1; percent < 100; ++percent) CHECK(before(static_cast<double>(percent) / 100, 100) == percent);
}

TEST_CASE("what cannot be averaged is refused") {
  const auto set = example_parameters();
  CHECK(error_of([&] { WeightAverage(ParameterSet{}); }).kind() == ErrorKind::Usage);
  CHECK(has(error_of([&] { WeightAverage(set, {.decay = 1.5}); }).what(), "average.decay"));
  WeightAverage averaged(set);
  CHECK(error_of([&] { averaged.update(ParameterSet{}); }).kind() == ErrorKind::Usage);
  ParameterSet renamed;
  for (const auto& p : set) renamed.add({.name = "x." + p.name, .value = p.value});
  CHECK(error_of([&] { averaged.update(renamed); }).kind() == ErrorKind::Usage);
  CHECK(error_of([&] { WeightAverage(set, {}, {}, renamed); }).kind() == ErrorKind::Usage);
}

TEST_CASE("averages of slices need a fill, and have the bits of complete ones with threads too") {
  at::set_num_threads(3);
  ParameterSet set;
  set.add({.name = "large", .value = at::randn({100003}).set_requires_grad(true)});
  ParameterSet slices;
  slices.add(set[0].slice(64 * 700, 100003 - 64 * 700));
  WeightAverage whole(set, {.decay = 0.9}), part(slices, {.decay = 0.9});
  for (int i = 0; i < 4; ++i) {
    move(set, i);
    whole.update(set);
    part.update(slices);
  }
  at::set_num_threads(1);
  CHECK(at::equal(part.averages()[0].value, slices[0].part_of(whole.averages()[0].value)));
  const auto own = digest(set);
  CHECK(has(error_of([&] { const AverageSwap swap(part); }).what(), "has averages of slices, which do not fill a model"));
  CHECK(digest(set) == own);
}

TEST_CASE("averages of slices are those of complete parameters, load their part, and are filled in by the caller") {
  const auto set = example_parameters();
  ParameterSet slices;
  for (const auto& p : set) slices.add(p.slice(p.value.numel() / 2, p.value.numel() - p.value.numel() / 2));
  WeightAverage whole(set, {.decay = 0.5}), part(slices, {.decay = 0.5}, {}, set);
  for (int i = 0; i < 3; ++i) {
    move(set, i);
    whole.update(set);
    part.update(slices);
  }
  const auto check_parts = [&](const WeightAverage& of) {
    for (size_t i = 0; i < set.size(); ++i) CHECK(at::equal(of.averages()[i].value, slices[i].part_of(whole.averages()[i].value)));
  };
  check_parts(part);
  WeightAverage loaded(slices, {.decay = 0.5}, {}, set);
  loaded.load_state(whole.state());
  check_parts(loaded);
  auto misshapen = whole.state();
  misshapen.tensors.at("average/fc.weight") = at::zeros({35});
  CHECK(
      has(error_of([&] { loaded.load_state(misshapen); }).what(), "average/fc.weight has the shape [35] in the saved state, [5, 7] here"));
  const auto own = digest(set);
  {
    const AverageSwap swap(part, [&](const auto& averages, const auto& model) {
      for (size_t i = 0; i < model.size(); ++i) {
        CHECK(averages[i].numel() == slices[i].value.numel());
        model[i].fill_(3);
      }
    });
    CHECK(set[0].value.eq(3).all().item<bool>());
  }
  CHECK(digest(set) == own);
}
