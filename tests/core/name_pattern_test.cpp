#include "testing.hpp"

#include "npu_train/core/name_pattern.hpp"

using namespace npu_train;

TEST_CASE("a star matches any text") {
  CHECK(glob_matches("blocks.0.attention", "blocks.*"));
  CHECK(glob_matches("abc", "*"));
  CHECK(glob_matches("", "**"));
  CHECK(glob_matches("abc", "a*c"));
  CHECK_FALSE(glob_matches("abc", "a*d"));
  CHECK_FALSE(glob_matches("abc", "b"));
  CHECK_FALSE(glob_matches("abc", ""));
  CHECK_FALSE(glob_matches(std::string(10000, 'a'), "*a*a*a*a*a*a*a*a*b"));
}

TEST_CASE("a pattern matches complete consecutive parts of a name") {
  const std::string name = "blocks.0.attention.qkv";
  for (const char* pattern : {"attention", "blocks.0", "attention.qkv", "attention.q*", "attention.*", "*.qkv", "qkv", "*", "b*",
                              "blocks.*.qkv", "blocks.0.attention.qkv"})
    CHECK_MESSAGE(parts_match(name, pattern), pattern);
  for (const char* pattern : {"atten", "locks.0", "blocks.attention", "qkv.*", "self_attention", "", ".", "blocks.1"})
    CHECK_FALSE_MESSAGE(parts_match(name, pattern), pattern);
  CHECK(parts_match("self_attention.q_proj", "*attention.*"));
  CHECK_FALSE(parts_match("self_attention.q_proj", "attention.*"));
}

TEST_CASE("a complete name selects only itself") {
  const std::vector<std::string> names = {"fc", "head.fc", "head.norm"};
  CHECK(matching_names(names, "fc") == std::vector<std::string>{"fc"});
  CHECK(matching_names(names, "f*") == std::vector<std::string>{"fc", "head.fc"});
  CHECK(matching_names(names, "head") == std::vector<std::string>{"head.fc", "head.norm"});
  CHECK(matching_names(names, "tail").empty());
}
