#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/nn/layer_scope.hpp"

using namespace npu_train;

namespace {

// Names of the user scopes that RecordFunction shows to anybody, as a profiler sees them.
std::vector<std::string> shown;

std::vector<std::string> scopes_of(const std::function<void()>& run) {
  shown.clear();
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& fn) {
                                                   shown.emplace_back(fn.name());
                                                   return std::unique_ptr<at::ObserverContext>();
                                                 }).scopes({at::RecordScope::USER_SCOPE}));
  run();
  at::removeCallback(handle);
  return shown;
}

}  // namespace

TEST_CASE("a layer gives what its forward gives, and profilers see its name") {
  const at::Tensor x = at::ones({3});
  const auto twice = [](const at::Tensor& t) { return t * 2; };
  CHECK(at::equal(in_layer("double", x, twice), x * 2));
  CHECK((scopes_of([&] { in_layer("double", x, twice); }) == std::vector<std::string>{"double"}));
  CHECK(scopes_of([&] { in_layer("", x, twice); }).empty());
  CHECK_THROWS(scopes_of([&] { in_layer("broken", x, [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("mine"); }); }));
}
