// Two trainings in two threads of one process.
#include "testing.hpp"

#include <thread>

#include "npu_train/base/state.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/train/loop.hpp"
#include "short_run.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Returns digests of the weights before the first step and at the end. With dropout 0, masks draw no numbers.
std::pair<uint64_t, uint64_t> weights_of(int64_t seed, const std::string& rng, double dropout) {
  auto c = short_run();
  c.seed = seed;
  c.rng = rng;
  c.model.options.set("dropout", dropout);
  c.trainer.max_steps = 4;
  Trainer trainer(c);
  trainer.setup();
  const auto all = [&] {
    uint64_t out = 0;
    const auto state = trainer.state();
    for (const auto& [name, tensor] : state.at("model").tensors) out = out * 31 + digest(tensor);
    return out;
  };
  const auto initial = all();
  trainer.fit();
  return {initial, all()};
}

}  // namespace

TEST_CASE("trainers in two threads give the weights that they give one after the other") {
  for (const auto& [rng, dropout] : {std::pair("portable", 0.2), std::pair("native", 0.0)}) {
    CAPTURE(rng);
    const auto one = weights_of(1, rng, dropout), two = weights_of(2, rng, dropout);
    CHECK(one != two);
    for (int round = 0; round < 4; ++round) {
      std::pair<uint64_t, uint64_t> a, b;
      const auto train = [&, rng = rng, dropout = dropout](uint64_t seed, auto& weights) { weights = weights_of(seed, rng, dropout); };
      std::thread first([&] { train(1, a); }), second([&] { train(2, b); });
      first.join();
      second.join();
      CHECK(a == one);
      CHECK(b == two);
    }
  }
}

TEST_CASE("initial weights do not depend on what the program drew before, nor on the data") {
  const auto initial = weights_of(3, "native", 0.1).first;
  at::rand({17});
  CHECK(weights_of(3, "native", 0.1).first == initial);
}
