#include "testing.hpp"

#include "npu_train/core/progress_line.hpp"

using npu_train::detail::clock_text;
using npu_train::detail::CountedProgress;
using npu_train::detail::fitted;
using npu_train::detail::ProgressLine;

TEST_CASE("a line loses the least important values first, and the text of the last one") {
  const std::vector<npu_train::detail::LinePart> parts = {{0, "epoch 1/3"}, {1, "eta 00:10 (epoch 00:02)", "eta 00:10"}, {7, "mem 3 GiB"}};
  CHECK(fitted(parts, 0) == "epoch 1/3  eta 00:10 (epoch 00:02)  mem 3 GiB");
  CHECK(fitted(parts, 45) == "epoch 1/3  eta 00:10 (epoch 00:02)  mem 3 GiB");
  CHECK(fitted(parts, 44) == "epoch 1/3  eta 00:10  mem 3 GiB");
  CHECK(fitted(parts, 30) == "epoch 1/3  eta 00:10");
  CHECK(fitted(parts, 9) == "epoch 1/3");
  CHECK(fitted(parts, 5).size() == 5);
}

TEST_CASE("times as a clock shows them") {
  CHECK(clock_text(0) == "00:00");
  CHECK(clock_text(65.4) == "01:05");
  CHECK(clock_text(3600 + 125) == "1:02:05");
}

TEST_CASE("a counted work shows its gauge and the remaining time, five times a second, and leaves nothing behind") {
  std::string text;
  const auto write = [&](const std::string& part) { text += part; };
  {
    CountedProgress progress("images", write, [] { return size_t{60}; });
    progress.show(1, 1000, 100.0);
    CHECK(text == "\r\033[K[....................]  images 1/1,000");
    text.clear();
    progress.show(20, 1000, 100.1);  // too soon
    CHECK(text == "");
    progress.show(501, 1000, 110.0);  // 50 a second
    CHECK(text == "\r\033[K[##########..........]  images 501/1,000  eta 00:10");
    text.clear();
    progress.show(1000, 1000, 110.05);  // the last one is always shown
    CHECK(text == "\r\033[K[####################]  images 1,000/1,000  eta 00:00");
    text.clear();
  }
  CHECK(text == "\r\033[K");
}

TEST_CASE("without a terminal nothing is written") {
  CountedProgress progress("images", {}, [] { return size_t{0}; });
  progress.show(1, 2, 0);
  progress.show(2, 2, 5);
  int lines = 0;
  {
    CountedProgress unused("images", [&](const std::string&) { ++lines; }, {});
  }
  CHECK(lines == 0);
  ProgressLine line([&](const std::string&) { ++lines; }, {});
  CHECK(line.width() == 80);
}
