#include "npu_train/base/number_bytes.hpp"

#include "testing.hpp"

#include <limits>

using namespace npu_train;

TEST_CASE("numbers keep their bits as bytes") {
  const std::vector<double> numbers{0.1, -0.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::denorm_min()};
  const auto bytes = to_bytes(numbers);
  CHECK(bytes.size() == 32);
  CHECK(to_bytes(numbers_of_bytes("test", bytes)) == bytes);
  CHECK(numbers_of_bytes("test", to_bytes({})).empty());
}

TEST_CASE("bytes that are not a list of numbers are refused") {
  CHECK_THROWS_WITH(numbers_of_bytes("begin_window", std::string(9, '\0')), doctest::Contains("[begin_window] a rank gave 9 bytes"));
}
