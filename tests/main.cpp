#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace {

/// The end of the names of the files whose cases are selected: --source-file=*/x_test.cpp, as ctest calls the program.
std::string asked_file;

/// Prints each test case of the file that is skipped, with its reason.
class SkippedCases final : public doctest::IReporter {
 public:
  explicit SkippedCases(const doctest::ContextOptions& /*options*/) {}
  void test_case_skipped(const doctest::TestCaseData& test) override {
    if (test.m_skip && std::string_view(test.m_file.c_str()).ends_with(asked_file))
      std::printf("skipped: %s: %s\n", test.m_name, test.m_description != nullptr ? test.m_description : "no reason is given");
  }
  void report_query(const doctest::QueryData& /*in*/) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats& /*in*/) override {}
  void test_case_start(const doctest::TestCaseData& /*in*/) override {}
  void test_case_reenter(const doctest::TestCaseData& /*in*/) override {}
  void test_case_end(const doctest::CurrentTestCaseStats& /*in*/) override {}
  void test_case_exception(const doctest::TestCaseException& /*in*/) override {}
  void subcase_start(const doctest::SubcaseSignature& /*in*/) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData& /*in*/) override {}
  void log_message(const doctest::MessageData& /*in*/) override {}
};

REGISTER_LISTENER("skipped", 1, SkippedCases);

}  // namespace

int main(int argc, char** argv) {
  constexpr std::string_view kOption = "--source-file=*";
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]).starts_with(kOption)) asked_file = argv[i] + kOption.size();
  return doctest::Context(argc, argv).run();
}
