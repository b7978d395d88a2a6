#include "testing.hpp"

#include "npu_train/train/options.hpp"

using namespace npu_train;

TEST_CASE("the options bind from text and refuse invalid values") {
  const auto good = bind<TrainerOptions>(parse_yaml("max_epochs: 3\ngradient_clip_val: 0.5\nmemory_format: channels_last", "t"), "trainer");
  CHECK(good.max_epochs == 3);
  CHECK(good.gradient_clip_val == 0.5);
  CHECK(good.memory_format == "channels_last");
  for (const char* bad :
       {"accumulate_grad_batches: 0", "gradient_clip_val: -1", "memory_format: nhwc", "max_epoch: 3", "on_divergence: pray"})
    CHECK(testing::error_of([&] { bind<TrainerOptions>(parse_yaml(bad, "t"), "trainer"); }).kind() == ErrorKind::Usage);
}

TEST_CASE("names of other tools are answered with ours") {
  const std::string message = testing::error_of([] { bind<TrainerOptions>(parse_yaml("epochs: 3", "t"), "trainer"); }).what();
  CHECK(message.find("max_epochs") != std::string::npos);
}

TEST_CASE("which direction is better") {
  CHECK(larger_is_better("val/acc1", "auto"));
  CHECK_FALSE(larger_is_better("val/loss", "auto"));
  CHECK_FALSE(larger_is_better("train/mae", "auto"));
  CHECK(larger_is_better("val/loss", "max"));
  CHECK_FALSE(larger_is_better("val/acc1", "min"));
}

TEST_CASE("the rounds of an epoch are those of the data, up to each limit") {
  CHECK(limited_rounds({}, 10) == 10);
  CHECK_FALSE(limited_rounds({}, std::nullopt).has_value());
  CHECK(limited_rounds({.limit_train_batches = 4}, 10) == 4);
  CHECK(limited_rounds({.limit_train_batches = 12}, 10) == 10);
  CHECK(limited_rounds({.limit_train_batches = 0}, 10) == 0);
  CHECK(limited_rounds({.limit_train_batches = 4}, std::nullopt) == 4);
  CHECK(limited_rounds({.overfit_batches = 3}, 10) == 3);
  CHECK(limited_rounds({.limit_train_batches = 2, .overfit_batches = 3}, 10) == 2);
  CHECK(limited_rounds({.fast_dev_run = true}, 10) == 1);
}
