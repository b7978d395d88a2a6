#include "npu_train/tools/bench/stages.hpp"

#include "testing.hpp"

#include <cmath>

using namespace npu_train;
using namespace npu_train::testing;

namespace {

BenchRow training(double ms, double memory, std::vector<std::pair<std::string, double>> more = {}) {
  BenchRow row{.section = "stages",
               .name = "ddp, 32-true",
               .numbers = {{"ranks", 2}, {"batch", 8}, {"step_ms_median", ms}, {"memory_bytes", memory}},
               .samples = {{1e-3 * ms}}};
  row.numbers.insert(row.numbers.end(), more.begin(), more.end());
  return row;
}

RunConfig config_of(const std::string& model, const std::string& precision) {
  RunConfig config;
  config.model.name = model;
  config.precision = precision;
  return config;
}

}  // namespace

TEST_CASE("stages add to the one before, and a model without fused kernels has no such stage") {
  const auto stages = training_stages(config_of("vit_tiny_cifar10", "32-true"), 16);
  REQUIRE(stages.size() == 5);
  CHECK((stages[0].settings == std::vector<std::string>{"trainer.strategy=ddp", "precision=32-true", "dist.preset=none",
                                                        "dist.group_size=none", "dist.reduction=auto", "dist.compression=none",
                                                        "dist.in_flight=0", "dist.shard_size=auto", "model.fused_kernels=false"}));
  CHECK((stages[1].settings == std::vector<std::string>{"trainer.strategy=zero2"}));
  CHECK((stages[2].settings == std::vector<std::string>{"precision=bf16-mixed"}));
  CHECK((stages[3].settings == std::vector<std::string>{"model.fused_kernels=auto"}));
  const auto preset = DistOptions::of_preset("communication");
  CHECK((stages[4].settings == std::vector<std::string>{"dist.preset=communication", "dist.group_size=8", "dist.reduction=native",
                                                        "dist.compression=" + preset.compression, "dist.in_flight=4"}));
  const auto language = training_stages(config_of("gpt2_tiny", "16-mixed"), 4);
  CHECK((language[2].settings == std::vector<std::string>{"precision=16-mixed"}));
  CHECK(language[4].settings[1] == "dist.group_size=2");
  CHECK(training_stages(config_of("gpt2_tiny", "32-true"), 2)[4].settings[1] == "dist.group_size=1");
  CHECK(language[3].settings.empty());
  CHECK(language[3].failure == "gpt2_tiny has no option fused_kernels");
  CHECK(has(error_of([] { training_stages(config_of("vitt", "32-true"), 2); }).what(), "vitt"));
}

TEST_CASE("the table has the fastest seed's times, the largest memory, and the losses of the seeds that did not diverge") {
  std::vector<Stage> stages(3);
  stages[0] = {
      .name = "baseline",
      .settings = {"precision=32-true"},
      .runs = {training(40, 100,
                        {{"loss", 2},
                         {"diverged", 0},
                         {"flops", 4e9},
                         {"moved_bytes", 2e8},
                         {"sent_bytes", 1e6},
                         {"communication_ms", 6},
                         {"parameters_ms", 4},
                         {"share_exposed", 0.2},
                         {"link_bytes_per_s", 1e9}}),
               training(50, 300, {{"loss", 4}, {"diverged", 0}, {"link_bytes_per_s", 4e8}}), training(60, 200, {{"diverged", 1}})}};
  stages[1] = {.name = "+ precision", .settings = {"precision=bf16-mixed"}, .runs = {training(10, 90, {{"flops", 4e9}, {"diverged", 1}})}};
  stages[2] = {.name = "+ fusion", .failure = "no option"};
  BenchReport report;
  add_stages(report, stages, {.products = 1e12, .low_products = 4e12, .copies = 1e11});
  REQUIRE(report.rows.size() == 3);
  const auto& first = report.rows[0];
  CHECK(first.name == "1 baseline");
  CHECK(first.number("step_ms_median") == 40);
  CHECK(first.number("speedup") == 1);
  CHECK(first.number("memory_bytes") == 300);
  CHECK(first.number("share_communication") == doctest::Approx(0.25));
  CHECK(first.number("share_exposed") == 0.2);
  CHECK(first.number("share_of_products") == doctest::Approx(0.1));
  CHECK(first.number("share_of_copies") == doctest::Approx(0.05));
  CHECK(first.number("share_of_link") == doctest::Approx(0.025));
  CHECK(first.number("diverged") == 1);
  CHECK(first.number("seeds") == 3);
  CHECK(first.number("loss") == 3);
  CHECK(first.number("loss_low") == 2);
  CHECK(first.number("loss_high") == 4);
  CHECK(report.rows[1].number("speedup") == 4);
  CHECK(report.rows[1].number("share_of_products") == doctest::Approx(0.1));  // relative to the products in low precision
  CHECK(report.rows[1].number("diverged") == 1);
  CHECK(std::isnan(report.rows[1].number("loss")));
  CHECK(report.rows[2].failure == "no option");

  const auto text = to_text(report, 80);
  CHECK(has(text, "1 of 3"));
  CHECK(has(text, "25 %"));
  CHECK(has(text, "3 + fusion: no option"));
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = text.find('\n', begin);
    CHECK(end - begin <= 80);
  }
  const auto page = to_html(report);
  CHECK(has(page, "1 of 3"));
  CHECK(has(page, "Another machine&#39;s: InternVL3 on 8 Atlas 300I/V Pro"));
}

TEST_CASE("a stage that is faster than the machine is doubted, with a cause") {
  const auto notes_of = [](double products, double low_products, double copies) {
    std::vector<Stage> stages(2);
    stages[0] = {.name = "baseline", .settings = {"precision=32-true"}, .runs = {training(10, 1, {{"flops", 4e9}, {"moved_bytes", 1e9}})}};
    stages[1] = {.name = "+ precision", .settings = {"precision=bf16-mixed"}, .runs = {training(5, 1, {{"flops", 4e9}})}};
    BenchReport report;
    add_stages(report, stages, {.products = products, .low_products = low_products, .copies = copies});
    return to_text(report, 100);
  };
  CHECK_FALSE(has(notes_of(1e12, 0, 1e12), "doubtful"));
  CHECK_FALSE(has(notes_of(0.77e12, 0, 1e12), "(!)"));  // 104 %
  const auto both = notes_of(0.153e12, 1e12, 1e12);
  CHECK(has(both, "261 % (!)"));
  CHECK(has(both, "doubtful: 1 baseline reaches 261 % of the measured products: other programs slowed the machine down"));
  CHECK_FALSE(has(both, "2 + precision reaches"));
  CHECK(has(notes_of(0.75e12, 0, 1e12), "doubtful: 2 + precision reaches 107 % of the measured products: they were measured in fp32 only"));
  CHECK(has(notes_of(1e13, 0, 9e10), "doubtful: 1 baseline reaches 111 % of the measured memory bandwidth: its tensors fit into"));
}

TEST_CASE("several devices are the scale of their ranks' shares") {
  std::vector<Stage> stages(1);
  stages[0] = {.name = "baseline", .settings = {"precision=32-true"}, .runs = {training(10, 1, {{"flops", 4e9}, {"moved_bytes", 1e9}})}};
  BenchReport report;
  add_stages(report, stages, {.products = 1e12, .copies = 1e12, .devices = 2});
  CHECK(report.rows[0].number("share_of_products") == doctest::Approx(0.2));
  CHECK(report.rows[0].number("share_of_copies") == doctest::Approx(0.05));
}

TEST_CASE("the published stages have the figures of their source") {
  const auto all = published_stages();
  REQUIRE(all.size() == 5);
  CHECK(all[0].seconds_per_step == 14.2);
  CHECK(all[4].seconds_per_step == 2.7);
  CHECK(all[1].memory_gb == 42);
  CHECK(all[3].communication_percent == 26);
  CHECK(all[0].stability == "often diverges");
  CHECK(all[4].compute_percent == 75);
  CHECK(all[0].link_percent == 25);
  CHECK(std::isnan(all[2].memory_percent));
  CHECK(has(published_stages_of(), "Atlas 300I/V Pro"));
}
