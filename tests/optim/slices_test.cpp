// Optimizers over slices of parameters, as sharding ranks have them, compared with optimizers over complete parameters.
#include "testing.hpp"

#include <barrier>
#include <thread>

#include "helpers.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Returns parameters whose sizes give vector kernels full blocks and a remainder, one of them with another memory format.
ParameterSet sliceable() {
  at::manual_seed(5);
  ParameterSet set;
  set.add({.name = "conv.weight", .value = at::randn({9, 8, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true)});
  set.add({.name = "fc.weight", .value = at::randn({61, 33}).set_requires_grad(true)});
  set.add({.name = "fc.bias", .value = at::randn({61}).set_requires_grad(true)});
  set.add({.name = "large", .value = at::randn({100003}).set_requires_grad(true)});  // large enough that operators divide it among threads
  return set;
}

struct Threads {
  explicit Threads(int threads) { at::set_num_threads(threads); }
  ~Threads() { at::set_num_threads(1); }
};

// Returns the slices of rank 0 or 1 of two ranks. The slice of the smallest parameter is empty on rank 0.
ParameterSet slices_of(const ParameterSet& set, int rank) {
  ParameterSet out;
  for (const auto& p : set) {
    const auto cut = p.value.numel() / 3 / 64 * 64;
    out.add(rank == 0 ? p.slice(0, cut) : p.slice(cut, p.value.numel() - cut));
  }
  return out;
}

}  // namespace

TEST_CASE("slices of a parameter are stepped as the complete one, bit for bit, and take their part of a saved state") {
  for (const auto& name : optimizer_names())
    for (const int count : {1, 3}) {
      if (name == "adafactor" || name == "muon") continue;
      CAPTURE(name);
      CAPTURE(count);
      const Threads threads(count);
      const auto start = sliceable();
      const auto whole = deep_copy(start), shared = deep_copy(start);
      const auto expected = make_optimizer(name, whole);
      CHECK(expected->takes_slices());
      random_gradients(expected->parameters(), 3);
      expected->step();  // so that the state is not empty
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < whole.size(); ++i) shared[i].value.copy_(whole[i].value);

      std::vector<std::unique_ptr<Optimizer>> ranks;
      std::barrier both(2);
      std::vector<at::Tensor> norms(2);
      for (int r = 0; r < 2; ++r) {
        ranks.push_back(make_optimizer(name, slices_of(shared, r)));
        ranks[r]->load_state(expected->state());
        ranks[r]->set_norm_reduction([&, r](at::Tensor& parts) {
          norms[r] = parts.clone();
          both.arrive_and_wait();
          parts = norms[0] + norms[1];
          both.arrive_and_wait();
        });
      }
      for (int t = 0; t < 3; ++t) {
        random_gradients(expected->parameters(), t);
        for (int r = 0; r < 2; ++r)
          for (size_t i = 0; i < whole.size(); ++i) {
            const auto& p = ranks[r]->parameters()[i];
            p.value.mutable_grad() = p.part_of(whole[i].value.grad()).clone();
          }
        expected->step();
        std::thread other([&] { ranks[1]->step(); });
        ranks[0]->step();
        other.join();
        CHECK(digest(shared) == digest(whole));
        for (const auto& [key, tensor] : expected->state().tensors)
          for (int r = 0; r < 2; ++r) {
            const auto& own = ranks[r]->state().tensors.at(key);
            const auto& p = *ranks[r]->parameters().find(key.substr(key.find('/') + 1));
            CHECK_MESSAGE(at::equal(own, tensor.dim() == 0 ? tensor : p.part_of(tensor)), key);
          }
      }
      auto misshapen = expected->state();
      if (misshapen.tensors.empty()) continue;
      for (auto& [key, tensor] : misshapen.tensors)
        if (tensor.dim() == 4) tensor = tensor.flatten();
      CHECK(has(error_of([&] { ranks[0]->load_state(misshapen); }).what(), "here"));
    }
}

TEST_CASE("adafactor and muon refuse slices") {
  for (const char* name : {"adafactor", "muon"}) {
    const auto set = sliceable();
    CHECK_FALSE(make_optimizer(name, set)->takes_slices());
    const auto e = error_of([&] { make_optimizer(name, slices_of(set, 0)); });
    CHECK(has(e.what(), "conv.weight is a slice"));
  }
}

TEST_CASE("LAMB over slices needs the norms of complete parameters") {
  const auto set = sliceable();
  const auto o = make_optimizer("lamb", slices_of(set, 0));
  random_gradients(o->parameters(), 1);
  const auto before = digest(set);
  CHECK(has(error_of([&] { o->step(); }).what(), "needs the norms of complete parameters, and has slices"));
  CHECK(digest(set) == before);
}

TEST_CASE("other slices of a parameter begin with a fresh state, the same one keeps its own") {
  const auto set = sliceable();
  const auto o = make_optimizer("adamw", slices_of(set, 0));
  random_gradients(o->parameters(), 1);
  o->step();
  const auto before = digest(o->state());
  o->set_parameters(slices_of(set, 0));
  CHECK(digest(o->state()) == before);
  o->set_parameters(slices_of(set, 1));
  for (const auto& [key, tensor] : o->state().tensors) CHECK_MESSAGE(tensor.count_nonzero().item<int64_t>() == 0, key);
}
