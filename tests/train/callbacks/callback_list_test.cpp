#include "testing.hpp"

#include "npu_train/core/log.hpp"
#include "train/callbacks/callback_list.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::CallbackList;

namespace {

struct Counter : Callback {
  explicit Counter(std::string n, int64_t c = 0) : own_name(std::move(n)), count(c) {}
  std::string name() const override { return own_name; }
  State state() const override { return {{{"total", torch::full({2}, static_cast<float>(count))}}, {{"count", count}}}; }
  void load_state(const State& state) override {
    count = state.integer("count", own_name);
    total = state.tensor("total", own_name);
  }
  std::string own_name;
  int64_t count;
  at::Tensor total;
};

struct Named final : Callback {
  explicit Named(std::string n) : own_name(std::move(n)) {}
  std::string name() const override { return own_name; }
  std::string own_name;
};

struct HalfDone final : Counter {
  HalfDone() : Counter("half") {}
  void load_state(const State& state) override { Callback::load_state(state); }
};

Error refused(const std::vector<std::shared_ptr<Callback>>& callbacks) {
  return error_of([&] {
    CallbackList list;
    for (const auto& c : callbacks) list.add(c);
    list.check_states();
  });
}

}  // namespace

TEST_CASE("state by name: each named callback has a part of the checkpoint, with tensors and values") {
  CallbackList list, resumed;
  list.add(std::make_shared<Counter>("a", 3));
  list.add(std::make_shared<Counter>("b.2-x", 5));
  list.add(std::make_shared<Named>("without_state"));
  list.add(std::make_shared<Callback>());
  RunState saved;
  list.save(saved);
  REQUIRE(saved.size() == 3);
  CHECK(saved.at("callbacks.a").integer("count", "a") == 3);
  CHECK(saved.at("callbacks.without_state").empty());
  const auto b = std::make_shared<Counter>("b.2-x"), a = std::make_shared<Counter>("a");
  resumed.add(b);  // in another order
  resumed.add(a);
  resumed.load(saved, {});
  CHECK(a->count == 3);
  CHECK(b->count == 5);
  CHECK(torch::equal(b->total, torch::full({2}, 5.0f)));
}

TEST_CASE("a state without a name, a name that is taken, and one that is no part of a file name are refused") {
  const auto nameless = refused({std::make_shared<Counter>("")});
  CHECK(nameless.kind() == ErrorKind::Usage);
  CHECK(has(nameless.what(), "no name"));
  CHECK(has(nameless.what(), "(count, ...)"));
  CHECK(has(refused({std::make_shared<Counter>("twice"), std::make_shared<Named>("twice")}).what(), "'twice' already"));
  for (const char* bad : {"a/b", "..\\x", "two words", "\xC3\xA4"}) CHECK(has(refused({std::make_shared<Named>(bad)}).what(), bad));
  CHECK(refused({std::make_shared<Named>(std::string(101, 'x'))}).kind() == ErrorKind::Usage);
  CHECK(refused({nullptr}).kind() == ErrorKind::Usage);
  struct Undefined final : Callback {
    std::string name() const override { return "undefined"; }
    State state() const override { return {{{"later", {}}}, {}}; }
  };
  CHECK(has(refused({std::make_shared<Undefined>()}).what(), "'later'"));
}

TEST_CASE("a state that no callback loads is refused") {
  RunState saved;
  saved["callbacks.half"] = HalfDone().state();
  CallbackList list;
  list.add(std::make_shared<HalfDone>());
  CHECK(error_of([&] { list.load(saved, {}); }).kind() == ErrorKind::Usage);
}

TEST_CASE("the state of a missing callback is kept, reported once, and given to the callback if it is added later") {
  std::vector<std::string> warnings;
  const ScopedLogSink sink([&](LogLevel level, std::string_view text) {
    if (level == LogLevel::Warning) warnings.emplace_back(text);
  });
  CallbackList list;
  auto tensor = torch::ones({1});
  RunState saved;
  saved["callbacks.absent"] = {{{"total", tensor}}, {{"count", int64_t{7}}}};
  list.load(saved, {});
  tensor.zero_();  // the owner changes its tensor
  for (int epoch = 0; epoch < 2; ++epoch) list.check_states();
  REQUIRE(warnings.size() == 1);
  CHECK(has(warnings[0], "'absent'"));
  RunState again;
  list.save(again);
  CHECK(again.at("callbacks.absent").integer("count", "absent") == 7);
  CHECK(again.at("callbacks.absent").tensors.at("total").item<float>() == 1);
  const auto late = std::make_shared<Counter>("absent");
  list.add(late);
  CHECK(late->count == 7);
  late->count = 8;
  again.clear();
  list.save(again);
  CHECK(again.at("callbacks.absent").integer("count", "absent") == 8);
}

TEST_CASE("an excluded part is neither loaded nor kept, and without a saved state the callback stays unchanged") {
  CallbackList list;
  const auto a = std::make_shared<Counter>("a", 1);
  list.add(a);
  RunState saved;
  saved["callbacks.a"] = Counter("a", 9).state();
  saved["callbacks.b"] = Counter("b", 9).state();
  list.load(saved, {"callbacks.a", "callbacks.b"});
  CHECK(a->count == 1);
  RunState again;
  list.save(again);
  CHECK(again.count("callbacks.b") == 0);
  list.load({}, {});
  CHECK(a->count == 1);
}
