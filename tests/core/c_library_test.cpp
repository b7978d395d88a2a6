#include "testing.hpp"

#include "npu_train/core/c_library.hpp"

#include <unistd.h>

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("the C library is named with its version, as confstr knows it") {
#ifdef _CS_GNU_LIBC_VERSION
  char expected[64] = "";
  REQUIRE(::confstr(_CS_GNU_LIBC_VERSION, expected, sizeof expected) > 0);  // such as "glibc 2.36"
  CHECK(c_library() == std::string(expected));
#else
  CHECK(c_library() == "unknown C library");
#endif
}
