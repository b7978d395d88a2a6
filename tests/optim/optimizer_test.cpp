#include "testing.hpp"

#include "helpers.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Returns a digest of everything that a skipped step must not change: names, types and bits.
std::pair<uint64_t, uint64_t> bits(const Optimizer& o) { return {digest(o.parameters()), digest(o.state())}; }

}  // namespace

TEST_CASE("a skipped step moves nothing, as the first step and later, and the next one is as if it had not been") {
  for (const auto& name : optimizer_names())
    for (const int skip_at : {0, 1, 3}) {
      CAPTURE(name);
      CAPTURE(skip_at);
      const auto start = example_parameters();
      const auto with = make_optimizer(name, deep_copy(start)), without = make_optimizer(name, deep_copy(start));
      for (int t = 0; t < 5; ++t) {
        if (t == skip_at) {
          const auto before = bits(*with);
          for (const auto& p : with->parameters()) p.value.mutable_grad() = at::full_like(p.value.detach(), kInf);
          with->step(found(1));
          CHECK(bits(*with) == before);
          with->step(found(3));  // a sum of flags over ranks may exceed 1
          CHECK(bits(*with) == before);
        }
        for (auto* o : {with.get(), without.get()}) random_gradients(o->parameters(), t);
        with->step(found(0));
        without->step();
        CHECK(bits(*with) == bits(*without));
      }
    }
}

TEST_CASE("limits hold after each step that is taken, and only for their parameter") {
  for (const auto& name : optimizer_names()) {
    CAPTURE(name);
    ParameterSet set;
    for (const char* parameter : {"limited", "free"}) set.add({.name = parameter, .value = at::full({4}, 5.0).set_requires_grad(true)});
    const auto o = make_optimizer(name, set);
    o->set_limits({{.name = "limited", .least = 0, .most = 4.5}, {.name = "absent", .least = 0, .most = 1}});
    const auto gradients = [&](double value) {
      for (const auto& p : o->parameters()) p.value.mutable_grad() = at::full({4}, value);
    };
    gradients(kInf);
    o->step(found(1));
    CHECK(set[0].value.eq(5).all().item<bool>());  // a skipped step does not clamp
    gradients(-1);
    o->step(found(0));
    CHECK(set[0].value.eq(4.5).all().item<bool>());
    CHECK(set[1].value.gt(4.5).all().item<bool>());
    gradients(1);
    o->step();
    CHECK(set[0].value.lt(4.5).all().item<bool>());  // leaves the limit at once
  }
}

TEST_CASE("negative zeros survive a skip") {
  for (const auto& name : optimizer_names()) {
    ParameterSet set;
    set.add({.name = "w", .value = at::full({3}, -0.0).set_requires_grad(true)});
    const auto o = make_optimizer(name, set);
    set[0].value.mutable_grad() = at::full({3}, kInf);
    o->step(found(1));
    CHECK(at::signbit(set[0].value).all().item<bool>());
  }
}

TEST_CASE("gradients to be unscaled are multiplied once") {
  for (const auto& name : optimizer_names()) {
    CAPTURE(name);
    const auto start = example_parameters();
    const auto a = make_optimizer(name, deep_copy(start)), b = make_optimizer(name, deep_copy(start));
    random_gradients(a->parameters(), 1);
    random_gradients(b->parameters(), 1);
    for (const auto& p : a->parameters()) p.value.mutable_grad().mul_(1024);
    auto decision = found(0);
    decision.inv_scale = at::full({}, 1.0 / 1024);
    a->step(decision);
    b->step();
    CHECK(bits(*a) == bits(*b));
    CHECK(at::equal(a->parameters()[0].value.grad(), b->parameters()[0].value.grad()));
  }
}

TEST_CASE("memory formats: parameter and gradient may differ") {
  for (const auto& name : optimizer_names())
    for (const bool parameter_last : {false, true})
      for (const bool gradient_last : {false, true}) {
        CAPTURE(name);
        CAPTURE(parameter_last);
        CAPTURE(gradient_last);
        const auto format = [](const at::Tensor& t, bool last) {
          return t.contiguous(last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
        };
        at::manual_seed(3);
        const auto w = at::randn({4, 3, 5, 2}), g = at::randn({4, 3, 5, 2});
        ParameterSet plain, other;
        plain.add({.name = "w", .value = w.clone().set_requires_grad(true)});
        other.add({.name = "w", .value = format(w.clone(), parameter_last).set_requires_grad(true)});
        const auto a = make_optimizer(name, plain), b = make_optimizer(name, other);
        for (int t = 0; t < 3; ++t) {
          plain[0].value.mutable_grad() = g * (t + 1);
          other[0].value.mutable_grad() = format(g * (t + 1), gradient_last);
          a->step();
          b->step();
        }
        CHECK(at::allclose(plain[0].value, other[0].value, 0, 1e-6));
        CHECK(other[0].value.is_contiguous(parameter_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous));
      }
}

TEST_CASE("gradients with odd strides: transposed, expanded, with other strides where the size is 1") {
  for (const auto& name : optimizer_names()) {
    CAPTURE(name);
    at::manual_seed(4);
    const auto w = at::randn({6, 1, 4});
    const auto g = at::randn({6, 1, 4});
    const std::vector<at::Tensor> forms = {g, g.permute({2, 1, 0}).contiguous().permute({2, 1, 0}), g.as_strided({6, 1, 4}, {4, 77, 1}),
                                           at::stack({g, g}, 3).select(3, 0)};
    at::Tensor expected;
    for (size_t k = 0; k < forms.size(); ++k) {
      CAPTURE(k);
      REQUIRE(at::equal(forms[k], g));
      ParameterSet set;
      set.add({.name = "w", .value = w.clone().set_requires_grad(true)});
      const auto o = make_optimizer(name, set);
      set[0].value.mutable_grad() = forms[k];
      o->step();
      if (k == 0) expected = set[0].value.detach().clone();
      CHECK(at::allclose(set[0].value, expected, 0, 1e-6));
    }
    ParameterSet set;
    set.add({.name = "w", .value = w.clone().set_requires_grad(true)});
    const auto o = make_optimizer(name, set);
    set[0].value.mutable_grad() = at::ones({1}).expand({6, 1, 4});
    o->step();
    CHECK_FALSE(at::equal(set[0].value, w));
  }
}

TEST_CASE("a parameter that changes its memory format takes its state along") {
  for (const auto& name : optimizer_names()) {
    CAPTURE(name);
    const auto start = example_parameters();
    const auto a = make_optimizer(name, deep_copy(start)), b = make_optimizer(name, deep_copy(start));
    for (int t = 0; t < 4; ++t) {
      if (t == 2) {
        const auto& w = a->parameters()[0].value;
        w.set_data(w.detach().contiguous(at::MemoryFormat::ChannelsLast));
      }
      random_gradients(b->parameters(), t);
      for (size_t i = 0; i < 4; ++i) a->parameters()[i].value.mutable_grad() = b->parameters()[i].value.grad().clone();
      a->step();
      b->step();
    }
    for (size_t i = 0; i < 4; ++i) CHECK(at::allclose(a->parameters()[i].value, b->parameters()[i].value, 0, 1e-6));
    CHECK(a->parameters()[0].value.is_contiguous(at::MemoryFormat::ChannelsLast));
  }
}

TEST_CASE("parameters without a gradient stay, and so does their state") {
  for (const auto& name : optimizer_names()) {
    CAPTURE(name);
    const auto set = example_parameters();
    const auto o = make_optimizer(name, set);
    random_gradients(set, 1);
    o->step();
    o->zero_grad();
    const auto kept = set[1].value.detach().clone();
    std::map<std::string, at::Tensor> state;
    for (const auto& [key, t] : o->state().tensors)
      if (key.ends_with("norm.weight")) state[key] = t.clone();
    set[0].value.mutable_grad() = at::ones({4, 3, 2, 2});
    o->step();
    CHECK(at::equal(set[1].value, kept));
    for (const auto& [key, t] : state) CHECK(at::equal(o->state().tensors.at(key), t));
    o->zero_grad();
    const auto all = digest(set);
    o->step();
    CHECK(digest(set) == all);
  }
}

TEST_CASE("groups: no decay, and a multiple of the rate") {
  for (const auto& name : optimizer_names()) {
    CAPTURE(name);
    auto set = example_parameters();
    OptimizerRegistry registry("optimizer");
    add_builtin_optimizers(registry);
    const auto o =
        registry.make({.name = name, .options = ConfigNode{{"lr", 0.1}, {"weight_decay", 0.5}, {"no_decay", true}}, .mark = {}}, "o", set);
    const auto before = deep_copy(set);
    for (const auto& p : set) p.value.mutable_grad() = at::zeros_like(p.value.detach());
    o->step();
    CHECK_FALSE(at::equal(set[0].value, before[0].value));  // conv.weight decays
    CHECK(at::equal(set[1].value, before[1].value));        // norm.weight
    CHECK_FALSE(at::equal(set[2].value, before[2].value));  // fc.weight
    CHECK(at::equal(set[3].value, before[3].value));        // fc.bias
    CHECK(o->parameters()[1].group == 1);
    CHECK(set[1].group == 0);  // the caller's set is not changed
  }
}

TEST_CASE("the learning rate can be set, zero moves nothing") {
  for (const auto& name : optimizer_names()) {
    CAPTURE(name);
    const auto set = example_parameters();
    const auto o = make_optimizer(name, set);
    CHECK(o->lr() == 0.05);
    o->set_lr(0);
    const auto before = digest(set);
    random_gradients(set, 1);
    o->step();
    CHECK(digest(set) == before);
  }
}

TEST_CASE("a state continues in another optimizer, bit for bit, and in another dtype") {
  for (const auto& name : optimizer_names()) {
    CAPTURE(name);
    const auto a = make_optimizer(name, example_parameters());
    for (int t = 0; t < 3; ++t) {
      random_gradients(a->parameters(), t);
      a->step();
    }
    const auto b = make_optimizer(name, deep_copy(a->parameters()));
    State saved = a->state();
    for (auto& [key, t] : saved.tensors) t = t.clone();
    b->load_state(saved);
    CHECK(digest(b->state()) == digest(a->state()));
    for (int t = 3; t < 6; ++t)
      for (auto* o : {a.get(), b.get()}) {
        random_gradients(o->parameters(), t);
        o->step();
      }
    CHECK(bits(*a) == bits(*b));

    const auto low = make_optimizer(name, example_parameters(at::kBFloat16));
    low->load_state(saved);
    for (const auto& [key, t] : low->state().tensors)
      CHECK(at::equal(t.to(at::kFloat), saved.tensors.at(key).to(t.scalar_type()).to(at::kFloat)));
    random_gradients(low->parameters(), 1);
    low->step();
    CHECK(at::isfinite(low->parameters()[0].value).all().item<bool>());
  }
}

TEST_CASE("a state that does not fit is refused and changes nothing") {
  for (const auto& name : optimizer_names()) {
    CAPTURE(name);
    const auto o = make_optimizer(name, example_parameters());
    random_gradients(o->parameters(), 1);
    o->step();
    const auto before = bits(*o);
    auto good = make_optimizer(name, example_parameters())->state();
    const auto refused = [&](State bad, const std::string& named) {
      const auto e = error_of([&] { o->load_state(bad); });
      CHECK(e.kind() == ErrorKind::Checkpoint);
      CAPTURE(e.what());
      CHECK(std::string(e.what()).find(named) != std::string::npos);
      CHECK(bits(*o) == before);
    };
    const auto key = good.tensors.begin()->first;
    auto missing = good, unknown = good, shape = good, other = good;
    missing.tensors.erase(key);
    refused(missing, key);
    unknown.tensors["exp_avg/ghost"] = at::ones({1});
    refused(unknown, "exp_avg/ghost");
    shape.tensors[key] = at::ones({2, 2});
    refused(shape, key);
    other.values["optimizer"] = std::string("abacus");
    refused(other, "abacus");
    refused({}, "optimizer");
  }
}

TEST_CASE("the state of a tied tensor loads from both of its names, and from either") {
  const auto copy_of = [](State state) {
    for (auto& [key, t] : state.tensors) t = t.clone();
    return state;
  };
  for (const auto& name : optimizer_names()) {
    CAPTURE(name);
    ParameterSet tied;
    tied.add({.name = "embed", .value = at::ones({4}).set_requires_grad(true)});
    tied.add({.name = "head", .value = tied[0].value});
    const auto o = make_optimizer(name, tied);
    random_gradients(tied, 1);
    o->step();
    const auto kept = copy_of(o->state());
    for (const bool both : {true, false}) {
      auto old = copy_of(kept);
      for (const auto& [key, tensor] : kept.tensors) {
        old.tensors.emplace(key.substr(0, key.find('/')) + "/head", both ? tensor + 1 : tensor);
        if (!both) old.tensors.erase(key);
      }
      random_gradients(tied, 2);
      o->step();
      o->load_state(old);
      CHECK(digest(o->state()) == digest(kept));
    }
    auto other = copy_of(kept);
    other.tensors.emplace(kept.tensors.begin()->first + "_too", at::ones({4}));
    CHECK(error_of([&] { o->load_state(other); }).kind() == ErrorKind::Checkpoint);
  }
}

TEST_CASE("tensors that cannot be trained are refused by name") {
  const auto usage = [](const at::Tensor& t, int group = 0) {
    ParameterSet set;
    set.add({.name = "the.parameter", .value = t, .group = group});
    const auto e = error_of([&] { Sgd{set}; });
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK(std::string(e.what()).find("the.parameter") != std::string::npos);
  };
  usage(at::zeros({2}, at::kLong));
  usage(at::zeros({1}).expand({4}));
  usage(at::zeros({4, 4}).slice(1, 0, 4, 2));
  usage(at::zeros({2}).set_requires_grad(true) * 2);
  usage(at::zeros({2}), 2);
  usage(at::zeros({2}), -1);
}

TEST_CASE("low-precision parameters are stepped in fp32 and rounded once") {
  for (const auto& name : optimizer_names())
    for (const auto type : {at::kBFloat16, at::kHalf}) {
      CAPTURE(name);
      const auto set = example_parameters(type);
      ParameterSet wide;
      for (const auto& p : set) wide.add({.name = p.name, .value = p.value.detach().to(at::kFloat).set_requires_grad(true)});
      const auto o = make_optimizer(name, set), in_fp32 = make_optimizer(name, wide);
      random_gradients(set, 1);
      for (size_t i = 0; i < set.size(); ++i) wide[i].value.mutable_grad() = set[i].value.grad().to(at::kFloat);
      o->step(found(0));
      in_fp32->step();
      for (size_t i = 0; i < set.size(); ++i) {
        CHECK((set[i].value.scalar_type() == type));
        CHECK(at::allclose(set[i].value.to(at::kFloat), wide[i].value, type == at::kHalf ? 0x1.2p-11 : 0x1.2p-8, 1e-7));
      }
      const auto kept = digest(set);
      o->step(found(1));
      CHECK(digest(set) == kept);
    }
}

TEST_CASE("the registry knows the built-in optimizers and their keys") {
  OptimizerRegistry registry("optimizer");
  add_builtin_optimizers(registry);
  auto names = optimizer_names();
  std::sort(names.begin(), names.end());
  CHECK(registry.names() == names);
  const auto set = example_parameters();
  for (const auto& name : registry.names())
    CHECK(registry.make({.name = name, .options = ConfigNode::map(), .mark = {}}, "o", set)->name() == name);
  const auto make = [&](const std::string& name, const std::string& yaml) {
    return error_of([&] { registry.make({.name = name, .options = parse_yaml(yaml, "t"), .mark = {}}, "o", set); });
  };
  CHECK(make("sdg", "{}").kind() == ErrorKind::Usage);
  CHECK(make("sgd", "{lr: -1}").kind() == ErrorKind::Usage);
  CHECK(make("sgd", "{nesterov: true, momentum: 0}").kind() == ErrorKind::Usage);
  CHECK(make("adamw", "{betas: [0.9]}").kind() == ErrorKind::Usage);
  CHECK(make("adamw", "{betas: [0.9, 1.0]}").kind() == ErrorKind::Usage);
  CHECK(make("adam", "{momentum: 0.9}").kind() == ErrorKind::Usage);
  const auto says = [&](const std::string& name, const std::string& yaml, const char* named) {
    const auto e = make(name, yaml);
    CAPTURE(e.what());
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK(std::string(e.what()).find(named) != std::string::npos);
  };
  says("sgd", "{nesterov: true, dampening: 0.1}", "dampening");
  says("sgd", "{momentum: 0, dampening: 0.1}", "dampening");
  says("rmsprop", "{alpha: 2}", "alpha");
  says("adagrad", "{lr_decay: -1}", "lr_decay");
  says("adadelta", "{rho: 2}", "rho");
  says("lion", "{betas: [0.9]}", "betas");
  says("adafactor", "{d: 0.5}", "d");
  says("adafactor", "{eps: [0]}", "eps has 1 numbers; it needs 2");
  says("muon", "{adjust_lr_fn: other}", "adjust_lr_fn");
  says("muon", "{adamw: [ghost]}", "'ghost' matches no parameter");
}

TEST_CASE("an optimizer reports its options") {
  for (const auto& name : optimizer_names()) {
    CAPTURE(name);
    const auto options = make_optimizer(name, example_parameters())->options();
    for (const char* key : {"lr", "weight_decay", "no_decay"}) CHECK(options.find(key) != nullptr);
  }
}

TEST_CASE("another set of parameters keeps the state of those that stay") {
  for (const auto& name : optimizer_names()) {
    CAPTURE(name);
    const auto start = example_parameters();
    REQUIRE(start.size() > 2);
    const auto gradients = [](const ParameterSet& set) {
      for (const auto& p : set) p.value.mutable_grad() = at::full_like(p.value.detach(), 0.25);
    };
    const auto without_first = [](const ParameterSet& set) {
      return set.filter([&](const Parameter& p) { return p.name != set[0].name; });
    };
    const auto all = deep_copy(start), twin = deep_copy(start);
    const auto changed = make_optimizer(name, without_first(all)), whole = make_optimizer(name, twin);
    gradients(all), gradients(twin);
    changed->step(), whole->step();
    changed->set_parameters(all);
    CHECK(changed->parameters().size() == start.size());
    for (const auto& [key, tensor] : whole->state().tensors) {
      const bool of_first = key.ends_with("/" + start[0].name);
      const auto here = changed->state().tensors.at(key);
      CHECK((of_first ? here.abs().sum().item<double>() == 0 : at::equal(here, tensor)));
    }
    changed->step();
    CHECK_FALSE(at::equal(all[0].value, start[0].value));  // trained from now on
    changed->set_parameters(without_first(all));
    CHECK(changed->state().tensors.size() < whole->state().tensors.size() + (whole->state().tensors.empty() ? 1 : 0));
    ParameterSet bad;
    bad.add({.name = "counts", .value = start[1].value.detach().to(at::kLong)});
    CHECK(error_of([&] { changed->set_parameters(bad); }).kind() == ErrorKind::Usage);
    CHECK(changed->parameters().size() == start.size() - 1);
  }
}
