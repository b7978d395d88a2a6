#include "testing.hpp"

#include "npu_train/engine/model_precision.hpp"

#include "engine/short_run.hpp"
#include "npu_train/engine/make_model.hpp"
#include "npu_train/nn/named_state.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("the device and the precision of a run") {
  const auto config = short_run("bf16-mixed");
  CHECK(run_device(config).is_cpu());
  CHECK(precision_options(config).mode == "bf16-mixed");
}

TEST_CASE("blocks that stay in fp32 keep their parameters, the others do not") {
  auto config = short_run();
  auto model = make_model(config.model, builtin_parts(), 1);
  const auto precision = make_precision({.mode = "bf16-true"}, Device{});
  const auto parameters = parameters_of(*model.module);
  const auto modules = amp_modules({.fp32_modules = {"head"}});
  const auto kept = fp32_parameters(model, modules, {"encoder.ln.weight"}, parameters, *precision);
  const auto holds = [&](const char* name) { return std::find(kept.begin(), kept.end(), name) != kept.end(); };
  CHECK(holds("encoder.ln.weight"));
  CHECK(holds("heads.head.weight"));
  CHECK_FALSE(holds("conv_proj.weight"));
}

TEST_CASE("a head of several layers stays in fp32 with all of them, and computes next to low-precision blocks") {
  auto config = short_run();
  config.model = {.name = "bert_tiny", .options = {}};
  config.model.options.set("num_classes", ConfigNode(3));
  auto model = make_model(config.model, builtin_parts(), 1);
  const auto precision = make_precision({.mode = "bf16-true"}, Device{});
  const auto parameters = parameters_of(*model.module);
  const auto modules = amp_modules({.fp32_modules = {"head"}});
  keep_in_fp32(model, modules, Device{}, *precision);
  const auto kept = fp32_parameters(model, modules, norm_parameters_of(*model.module), parameters, *precision);
  for (const auto& p : parameters)
    if (std::find(kept.begin(), kept.end(), p.name) == kept.end()) p.value.set_data(p.value.to(at::kBFloat16));
  CHECK((parameters.find("pooler.weight")->value.scalar_type() == at::kFloat));
  CHECK((parameters.find("classifier.bias")->value.scalar_type() == at::kFloat));
  CHECK((parameters.find("token_embedding.weight")->value.scalar_type() == at::kBFloat16));
  CHECK((model.forward(at::ones({2, 5}, at::kLong)).scalar_type() == at::kFloat));
}

TEST_CASE("lists that contradict each other, or name no block, are refused") {
  CHECK(has(error_of([] { amp_modules({.fp32_modules = {"head"}, .low_precision_modules = {"head"}}); }).what(), "head"));
  auto model = make_model(short_run().model, builtin_parts(), 1);
  const auto precision = make_precision({.mode = "bf16-mixed"}, Device{});
  CHECK(error_of([&] { keep_in_fp32(model, amp_modules({.fp32_modules = {"no_such_block"}}), Device{}, *precision); }).kind() ==
        ErrorKind::Usage);
}

TEST_CASE(
    "weights that only autocast reads: of linear layers and convolutions, no norms, biases or embeddings, not tied, outside of fp32 "
    "blocks") {
  const auto names_of = [](const std::string& model, const std::vector<std::string>& fp32_modules, const std::vector<std::string>& fp32_ops,
                           const std::string& precision = "bf16-mixed", const std::string& cpu = "native") {
    auto config = short_run(precision);
    config.cpu_low_precision = cpu;
    config.amp.fp32_modules = fp32_modules;
    config.amp.fp32_ops = fp32_ops;
    config.model = {.name = model, .options = {}};
    if (model == "bert_tiny") config.model.options.set("num_classes", ConfigNode(3));
    const auto made = make_model(config.model, builtin_parts(), 1);
    const auto mode = make_precision(precision_options(config), Device{});
    return autocast_weights(made, config, Device{}, parameters_of(*made.module), *mode);
  };
  using Names = std::vector<std::string>;
  const auto holds = [](const Names& names, const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); };

  const auto all = names_of("bert_tiny", {}, {});
  CHECK(holds(all, "pooler.weight"));
  CHECK(holds(all, "classifier.weight"));
  for (const auto& name : all) {
    CAPTURE(name);
    CHECK(name.ends_with(".weight"));
    CHECK(name.find("embedding") == std::string::npos);
    CHECK(name.find("norm") == std::string::npos);
  }
  // The head's block also runs the pooler, which is not part of the head's module.
  const auto without_head = names_of("bert_tiny", {"head"}, {});
  CHECK_FALSE(holds(without_head, "pooler.weight"));
  CHECK_FALSE(holds(without_head, "classifier.weight"));
  CHECK(without_head.size() == all.size() - 2);
  // The head of GPT-2 is its embedding.
  for (const auto& name : names_of("gpt2_tiny", {}, {})) CHECK(name.find("blocks.") == 0);

  CHECK(names_of("bert_tiny", {}, {"linear"}).empty());
  CHECK(names_of("bert_tiny", {}, {"softmax"}) == all);
  CHECK(names_of("bert_tiny", {}, {}, "bf16-mixed", "emulated").empty());
  CHECK(names_of("bert_tiny", {}, {}, "32-true").empty());
  CHECK(names_of("bert_tiny", {}, {}, "bf16-true").empty());
}
