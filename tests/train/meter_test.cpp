#include "testing.hpp"

#include "npu_train/train/meter.hpp"

#include <cmath>

using namespace npu_train;

TEST_CASE("a weighted mean") {
  MeanMeter m;
  CHECK(m.value() == 0);
  m.add(1, 1);
  m.add(4, 3);
  CHECK(m.value() == doctest::Approx(13.0 / 4));
  MeanMeter again;
  again.restore(m.sum(), m.weight());
  again.add(0, 4);
  CHECK(again.value() == doctest::Approx(13.0 / 8));
  again.add(std::nan(""), 0);  // weight 0 is ignored
  CHECK(again.value() == doctest::Approx(13.0 / 8));
}

TEST_CASE("metrics keep their order, also after a restore in another") {
  MetricMeter m;
  m.restore("acc1", 100, 2);
  m.restore("loss", 3, 2);
  m.add({{"loss", 0.5}, {"acc1", 100.0}}, 2);
  const auto value = m.value();
  REQUIRE(value.size() == 2);
  CHECK(value[0].first == "loss");
  CHECK(value[0].second == doctest::Approx(1.0));
  CHECK(value[1].second == doctest::Approx(75.0));
}

TEST_CASE("a metric for which nothing counted has no mean") {
  MetricMeter m;
  m.add({{"loss", 1.0}, {"generator_loss", std::nan("")}}, std::vector<double>{2, 0});
  REQUIRE(m.value().size() == 1);
  CHECK(m.value()[0].first == "loss");
  m.add({{"loss", 1.0}, {"generator_loss", 3.0}}, std::vector<double>{2, 2});
  REQUIRE(m.value().size() == 2);
  CHECK(m.value()[1].second == 3);
}

TEST_CASE("a NaN is not hidden by an average") {
  MetricMeter m;
  m.add({{"loss", 1.0}}, 1);
  m.add({{"loss", std::nan("")}}, 1);
  CHECK(std::isnan(m.value()[0].second));
}
