#include "testing.hpp"

#include "npu_train/tools/align/dumper.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;

TEST_CASE("steps are numbers and ranges") {
  const StepRanges steps({"0", "4-6"});
  for (const int64_t in : {0, 4, 5, 6}) CHECK(steps.contains(in));
  for (const int64_t out : {1, 3, 7}) CHECK_FALSE(steps.contains(out));
  CHECK(StepRanges({}).contains(123));
  for (const std::string bad : {"", "-1", "4-", "a", "1-2-3", "99999999999999999999"}) {
    CAPTURE(bad);
    CHECK(has(error_of([&] { StepRanges({bad}); }).what(), "dump.steps"));
  }
}

TEST_CASE("names match parts or patterns") {
  CHECK(name_matches("Module.layer1.0.conv1.Conv2d", "layer1"));
  CHECK(name_matches("Module.layer1.0.conv1.Conv2d", "*.conv1.*"));
  CHECK_FALSE(name_matches("Module.layer1.0.conv1.Conv2d", "*.conv1"));
  CHECK(name_matches("abc", "*"));
  CHECK_FALSE(name_matches("abc", "a*d"));
  CHECK_FALSE(name_matches(std::string(10000, 'a'), "*a*a*a*a*a*a*a*a*b"));
}

TEST_CASE("patterns of calls mean the layer's path too, with or without the prefix") {
  for (const std::string name : {"Module.layer4.0.conv1.Conv2d.forward.0", "Module.layer4.0.conv1.Conv2d"}) {
    CAPTURE(name);
    for (const char* pattern : {"layer4.*", "layer4*", "Module.layer4.*", "*.conv1", "Module.layer4.*.conv1", "*.Conv2d*", "conv1", "*"})
      CHECK_MESSAGE(call_matches(name, pattern), pattern);
    for (const char* pattern : {"layer3.*", "conv1*", "layer4.1*", "Module.conv1*"})
      CHECK_FALSE_MESSAGE(call_matches(name, pattern), pattern);
  }
  CHECK_FALSE(call_matches("Functional.relu.0.forward", "relu*"));  // names no layer
  CHECK(call_matches("Functional.relu.0.forward", "*relu*"));
}

TEST_CASE("a configuration of the field binds, and other tools' names are reported") {
  const auto options =
      bind<DumpOptions>(parse_yaml(R"({level: mix, task: tensor, steps: [0, "4-6"], scope: [a, b], list: [conv], ranks: [0],
    data_mode: [forward, output], sample: 0.5, summary: crc32, async: false, dir: x})",
                                   "dump.yaml"),
                        "dump");
  CHECK(options.steps.size() == 2);
  CHECK(options.sample == 0.5);
  CHECK(has(error_of([] { bind<DumpOptions>(parse_yaml("{summary_mode: md5}", "dump.yaml"), "dump"); }).what(), "summary"));
  CHECK(has(error_of([] { bind<DumpOptions>(parse_yaml("{level: L0}", "dump.yaml"), "dump"); }).what(), "module, op, mix"));
  for (const auto& [given, name] : {std::pair("level: L1", "the name here is op"), std::pair("summary: md5", "the name here is crc32")})
    CHECK(has(error_of([&, &text = given] { bind<DumpOptions>(parse_yaml(text, "dump.yaml"), "dump"); }).what(), name));
  CHECK(has(error_of([] { bind<DumpOptions>(parse_yaml("{sample: 0}", "dump.yaml"), "dump"); }).what(), "sample"));
}
