#include "npu_train/dist/options.hpp"

#include "testing.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

DistOptions bound(const std::string& yaml) { return bind<DistOptions>(parse_yaml(yaml, "test"), "dist"); }

}  // namespace

TEST_CASE("the section dist: defaults, every key, and what is refused") {
  const auto defaults = bound("{}");
  CHECK(defaults.reduction == "ordered");
  CHECK(defaults.reduce == "window");
  CHECK(defaults.bucket_mib == 25);
  CHECK(defaults.timeout == 300);
  CHECK(defaults.check_every == 0);
  CHECK_FALSE(defaults.debug);
  const auto all = bound("{reduction: native, reduce: micro_batch, bucket_mib: 0.5, timeout: 2, check_every: 3, debug: true}");
  CHECK(all.reduction == "native");
  CHECK(all.reduce == "micro_batch");
  CHECK(all.bucket_mib == 0.5);
  CHECK(all.timeout == 2);
  CHECK(all.check_every == 3);
  CHECK(all.debug);
  for (const char* wrong :
       {"{reduction: ring}", "{reduce: never}", "{bucket_mib: 0}", "{timeout: 0.5}", "{check_every: -1}", "{debug: 2}", "{bucket_mb: 1}"}) {
    CAPTURE(wrong);
    CHECK((error_of([&] { bound(wrong); }).kind() == ErrorKind::Usage));
  }
}
