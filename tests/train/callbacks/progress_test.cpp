#include "testing.hpp"

#include "npu_train/train/callbacks/progress.hpp"

#include <algorithm>

#include "train/toy.hpp"

using namespace npu_train;

namespace {
std::string progress_of(bool bar, size_t width = 0) {
  std::string text;
  testing::Toy toy;
  toy.train = testing::toy_data(80);
  toy.val = testing::toy_data(80, 4);
  const auto loop = toy.loop({.max_epochs = 2});
  loop->add_callback(std::make_shared<Progress>([&](const std::string& part) { text += part; }, bar, 5, [width] { return width; }));
  loop->fit();
  return text;
}
}  // namespace

TEST_CASE("plain lines carry what people look for, at the given rhythm and at the end of an epoch") {
  const auto text = progress_of(false);
  for (const char* word :
       {"epoch 1/2  step 5/10", "step 10/10", "eta ", "loss ", "acc1 ", "lr 0.1", "samples/s", "data ", "mem ", "epoch 2 done:", "| val"}) {
    CAPTURE(word);
    CHECK(text.find(word) != std::string::npos);
  }
  CHECK(text.find('\r') == std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 6);
}

TEST_CASE("a bar replaces its line, is never longer than the terminal, and is gone before anything else is written") {
  for (const size_t width : {size_t{60}, size_t{80}, size_t{120}, size_t{0}}) {
    const auto text = progress_of(true, width);
    CAPTURE(width);
    CHECK(text.find("\r\033[K[") != std::string::npos);
    CHECK(text.find("\r\033[Kepoch 1 done:") != std::string::npos);
    CHECK(text.find("  validation 10/10") != std::string::npos);
    size_t bars = 0;
    for (size_t at = text.find("\r\033[K["); at != std::string::npos; at = text.find("\r\033[K[", at + 1)) {
      const auto begin = at + 4, end = text.find_first_of("\r\n", begin);
      CHECK(end - begin < (width > 0 ? width : 80));
      ++bars;
    }
    CHECK(bars >= 4);
  }
}

TEST_CASE("the time that a run still takes, by epochs, steps and the limit of its time") {
  /// Makes each window take two seconds.
  struct TwoSeconds final : Callback {
    explicit TwoSeconds(std::shared_ptr<ManualClock> c) : clock(std::move(c)) {}
    void on_step_end(TrainLoop&, const StepReport&) override { clock->advance(2); }
    std::shared_ptr<ManualClock> clock;
  };
  const auto at_third_step = [](TrainerOptions options) {
    testing::Toy toy;
    const auto clock = std::make_shared<ManualClock>();
    options.num_sanity_val_steps = 0;
    const auto loop = toy.loop(options, {}, nullptr, {}, clock);
    std::string text;
    loop->add_callback(std::make_shared<TwoSeconds>(clock));
    loop->add_callback(std::make_shared<Progress>([&](const std::string& part) { text += part; }, false, 1));
    loop->fit();
    const auto begin = text.find("step 3/5  eta ") + 14;
    return text.substr(begin, text.find(' ', begin) - begin);
  };
  CHECK(at_third_step({.max_epochs = 100}) == "16:34");  // for 497 of 500 windows
  CHECK(at_third_step({.max_epochs = 100, .max_steps = 13}) == "00:20");
  CHECK(at_third_step({.max_epochs = 100, .max_time = 60}) == "00:54");
  CHECK(at_third_step({.max_epochs = -1, .max_steps = 4}) == "00:02");
}
