#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/core/process.hpp"

namespace npu_train::testing {
namespace {

struct Condition {
  bool (*holds)();
  const char* why_not;
};

/// Conditions of test cases, by the file and the line of the case.
std::map<std::pair<std::string, unsigned>, Condition>& conditions() {
  static std::map<std::pair<std::string, unsigned>, Condition> all;
  return all;
}

/// Evaluates the conditions of the test cases in a list of doctest, and prints each case that is skipped, with its reason.
class SkippedCases final : public doctest::IReporter {
 public:
  explicit SkippedCases(const doctest::ContextOptions& /*options*/) {}
  void report_query(const doctest::QueryData& listed) override {
    for (unsigned i = 0; i < listed.num_data; ++i) {
      const auto* test = listed.data[i];
      const auto found = conditions().find({test->m_file.c_str(), test->m_line});
      if (found == conditions().end() || found->second.holds()) continue;
      auto* skipped = const_cast<doctest::TestCaseData*>(test);  // the only access to its cases that doctest offers
      skipped->m_skip = true;
      skipped->m_description = found->second.why_not;
    }
  }
  void test_case_skipped(const doctest::TestCaseData& test) override {
    if (test.m_skip)
      std::printf("skipped: %s: %s\n", test.m_name, test.m_description != nullptr ? test.m_description : "no reason is given");
  }
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

void skip_unless(bool (*condition)(), const char* why_not, const doctest::TestCaseData& test) {
  conditions()[{test.m_file.c_str(), test.m_line}] = {condition, why_not};
}

}  // namespace npu_train::testing

int main(int argc, char** argv) {
#ifdef NPU_TRAIN_SANITIZED
  std::setvbuf(stdout, nullptr, _IONBF, 0);  // because ThreadSanitizer's _exit() would write in a forked child what is buffered
#endif
  // Lists the selected cases first, so that only their conditions are evaluated. The selection depends on doctest's options.
  std::vector<const char*> list(argv, argv + argc);
  list.insert(list.end(), {"--list-test-cases", "--reporters=none", "-r=none"});
  doctest::Context(static_cast<int>(list.size()), list.data()).run();
  const int failed = doctest::Context(argc, argv).run();
#ifdef NPU_TRAIN_SANITIZED
  return failed;  // a normal return, because sanitizers report at the end of main()
#else
  npu_train::end_process(failed);
#endif
}
