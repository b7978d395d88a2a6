#include "testing.hpp"

#include <ATen/ATen.h>

#include <thread>

#include "npu_train/device/live_bytes.hpp"
#include "npu_train/nn/saved_tensors.hpp"
#include "reference/tensor.hpp"

using namespace npu_train;
using reference::leaf;

namespace {

// Counts what autograd saves, and returns it unchanged.
struct Counter {
  int saved = 0, asked = 0;
  SavedTensorHooks::Pack pack() {
    return [this](const at::Tensor& t, bool) {
      ++saved;
      return [this, t] {
        ++asked;
        return t;
      };
    };
  }
};

}  // namespace

TEST_CASE("what autograd saves goes through the hooks of its thread, and comes back in the backward pass") {
  const at::Tensor a = leaf({3, 4}, 1, at::kFloat), b = leaf({4, 2}, 2, at::kFloat);
  Counter counter;
  at::Tensor y;
  {
    const SavedTensorHooks hooks(counter.pack());
    y = at::mm(a, b);
    CHECK(counter.saved == 2);
    std::thread([&] { at::mm(a, b); }).join();
    CHECK(counter.saved == 2);
  }
  at::mm(a, b);
  CHECK(counter.saved == 2);
  CHECK(counter.asked == 0);
  y.sum().backward();
  CHECK(counter.asked == 2);
  const at::Tensor da = a.grad().clone();
  a.mutable_grad().reset();
  at::mm(a, b).sum().backward();
  CHECK(at::equal(a.grad(), da));
}

TEST_CASE("a saved tensor can be kept in another form") {
  const at::Tensor x = leaf({100}, 3, at::kFloat);
  at::Tensor y;
  {
    const SavedTensorHooks hooks([](const at::Tensor& t, bool) {
      const at::Tensor half = t.to(at::kHalf);
      return [half] { return half.to(at::kFloat); };
    });
    y = at::sin(x);
  }
  y.sum().backward();
  CHECK(at::equal(x.grad(), at::cos(x.detach().to(at::kHalf).to(at::kFloat))));
}

TEST_CASE("regions nest, and the hooks do not see what they save themselves") {
  const at::Tensor x = leaf({5}, 4, at::kFloat);
  Counter outer, inner;
  const SavedTensorHooks one([&](const at::Tensor& t, bool) {
    at::sin(x);
    return outer.pack()(t, false);
  });
  at::sin(x);
  CHECK(outer.saved == 1);
  {
    const SavedTensorHooks two(inner.pack());
    at::sin(x);
    const auto unpack = SavedTensorHooks::save(x);
    CHECK(unpack().is_alias_of(x));
  }
  CHECK(inner.saved == 2);
  CHECK(inner.asked == 1);
  CHECK(outer.saved == 1);
}

TEST_CASE("the hooks receive whether a tensor is an input or the result of the operator that saves it") {
  const at::Tensor x = leaf({5}, 10, at::kFloat);
  std::vector<bool> results;
  const SavedTensorHooks hooks([&](const at::Tensor& t, bool result) {
    results.push_back(result);
    CHECK_FALSE(t.requires_grad());
    return [t] { return t; };
  });
  const at::Tensor y = at::sin(at::exp(x)), z = at::gelu(y * 2);  // saves input of sin, result of exp, input of gelu
  CHECK((results == std::vector<bool>{true, false, false}));
}

TEST_CASE("nothing outlives its graph, also a result that is saved by the very node that made it") {
  const at::Tensor x = leaf({64, 64}, 9, at::kFloat);
  const LiveBytes live;
  {
    const SavedTensorHooks hooks([](const at::Tensor& t, bool) { return [t] { return t; }; });
    const at::Tensor y = at::tanh(at::exp(x));
    CHECK(live.now() > 0);
  }
  CHECK(live.now() == 0);
}

TEST_CASE("hooks of many threads at once do not mix") {
  std::vector<std::thread> threads;
  std::vector<int> counts(8);
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([i, &counts] {
      const at::Tensor x = leaf({5}, 5, at::kFloat);
      for (int k = 0; k < 50; ++k) {
        Counter counter;
        at::Tensor y;
        {
          const SavedTensorHooks hooks(counter.pack());
          y = at::sin(x);
        }
        y.sum().backward();
        counts[i] += counter.saved + counter.asked;
      }
    });
  for (auto& t : threads) t.join();
  CHECK((counts == std::vector<int>(8, 100)));
}
