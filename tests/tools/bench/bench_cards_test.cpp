#include "testing.hpp"

#include "npu_train/tools/bench/bench_cards.hpp"

#include <cmath>

#include "npu_train/core/error.hpp"
#include "npu_train/io/file.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

BenchReport report_from(const std::string& device, double speed) {
  BenchReport out{.model = "net", .device = device, .precision = "32-true"};
  out.environment = {{"card", "Card 9000"}, {"cann", "9.1.0"}, {"cpu", "A CPU"}};
  out.rows.push_back({.section = "step",
                      .name = "batch 32",
                      .numbers = {{"batch", 32},
                                  {"samples_per_s", speed},
                                  {"step_ms_median", 32e3 / speed},
                                  {"peak_memory_bytes", 4.2e9},
                                  {"device_power_w", 185}}});
  out.rows.push_back({.section = "batch", .name = "batch 32", .numbers = {{"batch", 32}, {"samples_per_s", 1}, {"step_ms_median", 1}}});
  out.rows.push_back({.section = "batch", .name = "batch 64", .numbers = {{"batch", 64}}, .failure = "out of memory"});
  return out;
}

}  // namespace

TEST_CASE("figures from elsewhere are labelled so, and relative to the first card") {
  const auto cards = cards_from_elsewhere();
  REQUIRE(cards.size() == 2);
  CHECK(cards[0].device == "V100");
  CHECK(cards[0].samples_per_s == 85.20);
  CHECK(std::isnan(cards[0].power_w));
  CHECK(cards[1].device == "910B");
  CHECK(cards[1].cann == "7.0.RC1.alpha005");
  CHECK(cards[1].batch == 32);
  CHECK(cards[1].seconds_per_step == 0.345);
  CHECK(cards[1].samples_per_s == 92.75);
  CHECK(cards[1].memory_gb == 4.2);
  CHECK(cards[1].power_w == 185);
  CHECK(relative_speed(cards[1], cards[0]) == 108.8);
  const auto text = cards_report(cards).text();
  for (const char* word : {"108.8 %", "100 %", "from elsewhere", "7.0.RC1.alpha005", "0.345", "92.75", "4.2", "185"})
    CHECK_MESSAGE(has(text, word), word);
  CHECK(has(cards_report(cards).html(), "108.8 %"));
  CHECK(cards_report(cards).json().at("cards", "x").items("x")[1].at("relative_percent", "x").number("x") == 108.8);
  CHECK(cards_report(cards).json().at("cards", "x").items("x")[0].at("elsewhere", "x").boolean("x"));
}

TEST_CASE("a report's own row next to them") {
  auto cards = card_rows(report_from("npu:0", 100), "mine.json");
  REQUIRE(cards.size() == 1);  // only the step: neither the sweep nor what failed
  CHECK(cards[0].device == "npu:0 (Card 9000)");
  CHECK(cards[0].cann == "9.1.0");
  CHECK(cards[0].seconds_per_step == doctest::Approx(0.32));
  CHECK(cards[0].memory_gb == doctest::Approx(4.2));
  CHECK(cards[0].power_w == 185);
  CHECK(!cards[0].elsewhere);
  CHECK(card_rows(report_from("cpu", 100), "x")[0].device == "cpu (A CPU)");
  cards.push_back(cards_from_elsewhere()[1]);
  CHECK(has(cards_report(cards).text(), "92.7 %"));
  cards[1].batch = 16;
  CHECK(has(cards_report(cards).text(), "different batch"));
  CHECK((error_of([] { cards_report({}); }).kind() == ErrorKind::Usage));
  BenchReport none{.model = "net", .device = "cpu", .precision = "32-true"};
  CHECK(has(error_of([&] { card_rows(none, "none.json"); }).what(), "none.json"));
}

TEST_CASE("figures of a file, and a file that has none") {
  const TempDir dir;
  write_file_atomic(dir / "a.csv", "device,batch,samples_per_s,power_w\nA100,32,200.5,300\nT4,16,40,\n");
  const auto cards = read_cards(dir / "a.csv");
  REQUIRE(cards.size() == 2);
  CHECK(cards[0].power_w == 300);
  CHECK(std::isnan(cards[1].power_w));
  CHECK(std::isnan(cards[1].memory_gb));
  CHECK(has(cards[0].source, "a.csv"));
  CHECK(cards[0].elsewhere);
  write_file_atomic(dir / "b.csv", "device,batch\nA100,32\n");
  CHECK((error_of([&] { read_cards(dir / "b.csv"); }).kind() == ErrorKind::Data));
}
