#include "testing.hpp"

#include "npu_train/tools/report/number.hpp"

using namespace npu_train;
using npu_train::testing::kInf;
using npu_train::testing::kNaN;

TEST_CASE("numbers keep few digits") {
  const std::vector<std::pair<double, const char*>> rows = {{0, "0"},
                                                            {-0.0, "0"},
                                                            {1, "1"},
                                                            {-1234567, "-1,234,567"},
                                                            {999999999999999, "999,999,999,999,999"},
                                                            {0.5, "0.5"},
                                                            {0.123456, "0.1235"},
                                                            {12.3456, "12.35"},
                                                            {-12.3, "-12.3"},
                                                            {999.96, "1,000"},
                                                            {9999.5, "10,000"},
                                                            {123456.7, "123,457"},
                                                            {0.99996, "1"},
                                                            {0.001, "0.001"},
                                                            {0.00123456, "0.001235"},
                                                            {0.00012345, "1.234e-4"},
                                                            {1e-5, "1e-5"},
                                                            {-2.5e-10, "-2.5e-10"},
                                                            {1234567.8, "1.235e6"},
                                                            {1e15, "1e15"},
                                                            {1.7976931348623157e308, "1.798e308"},
                                                            {5e-324, "4.941e-324"},
                                                            {kInf, "inf"},
                                                            {-kInf, "-inf"},
                                                            {kNaN, "nan"}};
  for (const auto& [value, text] : rows) CHECK(short_number(value) == text);
  CHECK(short_number(0.999999123, 9) == "0.999999123");
  CHECK(short_number(0.25, 1) == "0.2");
  CHECK(short_number(2e-7, 1) == "2e-7");
}
