#include "testing.hpp"

#include "tools/commands/serve/local_request.hpp"

using namespace npu_train;

TEST_CASE("a request is local if its host is 127.0.0.1 or localhost, with any port") {
  for (const char* good : {"127.0.0.1", "127.0.0.1:8008", "localhost", "LocalHost:1"}) CHECK_MESSAGE(cli::is_local_host(good), good);
  for (const char* bad : {"", ":80", "localhost:", "localhost:x", "localhost:80:80", "localhost.", "127.0.0.1.example.org", "example.org",
                          "127.1", "[::1]:80", " localhost"})
    CHECK_FALSE_MESSAGE(cli::is_local_host(bad), bad);
}

TEST_CASE("keys are equal only as a whole, and an empty key opens nothing") {
  CHECK(cli::is_same_key("abc", "abc"));
  for (const char* bad : {"", "ab", "abcd", "abd", "bbc", "ABC"}) CHECK_FALSE_MESSAGE(cli::is_same_key(bad, "abc"), bad);
  CHECK_FALSE(cli::is_same_key("", ""));
}
