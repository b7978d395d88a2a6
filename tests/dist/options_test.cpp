#include "npu_train/dist/options.hpp"

#include "testing.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

DistOptions bound(const std::string& yaml) { return bind<DistOptions>(parse_yaml(yaml, "test"), "dist"); }

}  // namespace

TEST_CASE("the section dist: defaults, every key, and what is refused") {
  const auto defaults = bound("{}");
  CHECK(defaults.backend == "auto");
  CHECK(defaults.reduction == "auto");
  CHECK(defaults.reduce == "auto");
  CHECK(defaults.preset == "none");
  CHECK(defaults.group_size == "none");
  CHECK(defaults.in_flight == 0);
  CHECK(defaults.bucket_mib == 25);
  CHECK(defaults.timeout == 300);
  CHECK(defaults.check_every == 0);
  CHECK_FALSE(defaults.debug);
  const auto all =
      bound("{backend: gloo, reduction: native, reduce: micro_batch, bucket_mib: 0.5, timeout: 2, check_every: 3, debug: true}");
  CHECK(all.backend == "gloo");
  CHECK(all.reduction == "native");
  CHECK(all.reduce == "micro_batch");
  CHECK(all.bucket_mib == 0.5);
  CHECK(all.timeout == 2);
  CHECK(all.check_every == 3);
  CHECK(all.debug);
  for (const char* wrong :
       {"{backend: mpi}", "{reduction: ring}", "{reduce: never}", "{bucket_mib: 0}", "{timeout: 0.5}", "{check_every: -1}", "{debug: 2}",
        "{bucket_mb: 1}", "{preset: fast}", "{in_flight: -1}", "{in_flight: 1025}"}) {
    CAPTURE(wrong);
    CHECK((error_of([&] { bound(wrong); }).kind() == ErrorKind::Usage));
  }
}

TEST_CASE("strategies by name") {
  CHECK((sharding_of("ddp") == Sharding::None));
  CHECK((sharding_of("zero1") == Sharding::Optimizer));
  CHECK((sharding_of("zero2") == Sharding::Gradients));
  CHECK((sharding_of("zero3") == Sharding::Parameters));
  for (const char* other : {"single", "auto", "zero", ""}) CHECK((sharding_of(other) == std::nullopt));
}

TEST_CASE("reduction: auto adds in order over Gloo, and between devices where another option needs the order") {
  CHECK(bound("{}").resolved("Gloo").adds_in_order());
  for (const char* transport : {"NCCL", "HCCL"}) {
    CAPTURE(transport);
    CHECK_FALSE(bound("{}").resolved(transport).adds_in_order());
    CHECK(bound("{reduce: micro_batch}").resolved(transport).adds_in_order());
    CHECK(bound("{reduce_dtype: bf16}").resolved(transport).adds_in_order());
    CHECK(bound("{reduction: ordered}").resolved(transport).adds_in_order());
  }
  CHECK_FALSE(bound("{reduction: native}").resolved("Gloo").adds_in_order());
}

TEST_CASE("reduce: auto sends once a window, and after each micro-batch where sums of gradients are in shards") {
  const auto reduce = [](const char* yaml, const char* transport, Sharding sharding) {
    return bound(yaml).resolved(transport, sharding).reduce;
  };
  CHECK(reduce("{}", "Gloo", Sharding::None) == "window");
  CHECK(reduce("{}", "Gloo", Sharding::Optimizer) == "window");
  CHECK(reduce("{}", "Gloo", Sharding::Gradients) == "micro_batch");
  CHECK(reduce("{reduce: window}", "Gloo", Sharding::Gradients) == "window");
  CHECK(reduce("{reduction: native}", "NCCL", Sharding::Gradients) == "micro_batch");  // each rank gets only its part of the sum
  CHECK_FALSE(bound("{}").resolved("NCCL", Sharding::Gradients).adds_in_order());      // by reduce_scatter, which all products support
}

TEST_CASE("group_size selects native sums, once a window, in every strategy and over every transport") {
  for (const char* transport : {"Gloo", "NCCL"})
    for (const auto sharding : {Sharding::None, Sharding::Optimizer, Sharding::Gradients, Sharding::Parameters})
      for (const char* yaml : {"{group_size: 8}", "{group_size: auto, compression: int8}"}) {
        const auto options = bound(yaml).resolved(transport, sharding);
        CHECK_FALSE(options.adds_in_order());
        CHECK(options.reduce == "window");
        CHECK_NOTHROW(options.compressed());
      }
  CHECK((error_of([] { bound("{reduction: native, compression: int8}").compressed(); }).kind() == ErrorKind::Usage));
}

TEST_CASE("a preset of a program: its values, over which members are set; none has none") {
  auto options = DistOptions::of_preset("communication");
  CHECK(options.preset == "communication");
  CHECK(options.group_size == "8");
  CHECK(options.reduction == "native");
  CHECK(options.in_flight == 4);
  const auto compression = options.compressed();
  CHECK((compression.method == Compression::Method::Largest));
  CHECK(compression.share == 0.01);
  CHECK(compression.ratio == 0.1);
  CHECK(compression.values == "int8");
  CHECK(to_yaml(to_node(DistOptions::of_preset("none"))) == to_yaml(to_node(DistOptions())));
  CHECK((error_of([] { DistOptions::of_preset("speed"); }).kind() == ErrorKind::Usage));
}

TEST_CASE("topk with an upper bound of its bytes; a bound of nothing else") {
  for (const char* text : {"topk:0.5+ratio:0.1", "topk:0.5+ratio:0.1+int8", "topk:0.5+int8+ratio:0.1"}) {
    const auto out = Compression::parse(text);
    CHECK(out.share == 0.5);
    CHECK(out.ratio == 0.1);
  }
  for (const char* text : {"ratio:0.1+topk:0.5", "topk:0.5+ratio:0.1+ratio:0.2", "topk:0.1+topk:0.2", "powersgd:2+ratio:0.1"}) {
    CAPTURE(text);
    CHECK((error_of([&] { Compression::parse(text); }).kind() == ErrorKind::Usage));
  }
}
