#include "testing.hpp"

#include "npu_train/train/divided_parameters.hpp"

#include "train/gan.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::divided_parameters;

TEST_CASE("each optimizer has the parameters that begin with its name; names that leave some out are refused") {
  GanTask gan;
  const auto divided = divided_parameters(gan, gan.parameters());
  REQUIRE(divided.size() == 2);
  CHECK(divided[0].first == "discriminator");
  CHECK(divided[0].second.size() == 4);
  CHECK(divided[1].second.size() == 5);
  CHECK(divided[1].second[0].name == "generator.0.weight");

  struct OtherNames final : AlternatingTask {
    explicit OtherNames(std::vector<std::string> names) : names_(std::move(names)) {}
    std::vector<std::string> optimizers() const override { return names_; }
    StepOutput loss_of(const std::string&, const ForwardContext&) override { return {}; }
    int64_t every(const std::string&) const override { return every_; }
    at::Tensor predict(const at::Tensor& input) override { return input; }
    ParameterSet parameters() override { return parameters_of(*net_); }
    void set_training(bool) override {}
    void to(c10::Device) override {}
    std::vector<std::string> names_;
    int64_t every_ = 1;
    GanNet net_;
  };
  const auto refused = [&](OtherNames task) { return std::string(error_of([&] { divided_parameters(task, task.parameters()); }).what()); };
  CHECK(has(refused(OtherNames({"generator"})), "no optimizer updates discriminator.0.weight"));
  CHECK(has(refused(OtherNames({"generator", "critic"})), "no parameter begins with 'critic.'"));
  CHECK(has(refused(OtherNames({"generator", "generator"})), "each once"));
  CHECK(has(refused(OtherNames({"generator", "a b"})), "letters, digits"));
  OtherNames slow({"generator", "discriminator"});
  slow.every_ = 2;
  CHECK(has(refused(slow), "steps in every window"));
}
