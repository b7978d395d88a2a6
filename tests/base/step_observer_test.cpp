#include "testing.hpp"

#include "npu_train/base/step_observer.hpp"

#include <stdexcept>
#include <string>
#include <vector>

using namespace npu_train;

namespace {

class Notes final : public StepObserver {
 public:
  explicit Notes(std::vector<std::string>& out) : out_(out) {}
  void phase_begin(Phase phase, int64_t attempt, int micro) override { note("begin ", phase, attempt, micro); }
  void phase_end(Phase phase, int64_t attempt, int micro) override { note("end ", phase, attempt, micro); }
  void phase_error(Phase phase, int64_t attempt, int micro, std::exception_ptr error) override {
    CHECK(error != nullptr);
    note("error ", phase, attempt, micro);
  }

 private:
  void note(const char* what, Phase phase, int64_t attempt, int micro) {
    out_.push_back(what + std::string(phase_name(phase)) + " " + std::to_string(attempt) + "." + std::to_string(micro));
  }
  std::vector<std::string>& out_;
};

}  // namespace

TEST_CASE("observers see begin and end, results pass through") {
  std::vector<std::string> seen;
  Notes notes(seen);
  Observers observers;
  CHECK(observers.run(Phase::Forward, 0, 0, [] { return 3; }) == 3);
  CHECK(seen.empty());
  observers.add(&notes);
  CHECK(observers.run(Phase::Forward, 4, 1, [] { return 3; }) == 3);
  int calls = 0;
  observers.run(Phase::Optimizer, 4, 0, [&] { ++calls; });
  CHECK(calls == 1);
  CHECK(seen == std::vector<std::string>{"begin forward 4.1", "end forward 4.1", "begin optimizer 4.0", "end optimizer 4.0"});
}

TEST_CASE("an exception is reported to the observers and rethrown") {
  std::vector<std::string> seen;
  Notes notes(seen);
  Observers observers;
  observers.add(&notes);
  CHECK_THROWS_AS(observers.run(Phase::Backward, 1, 0, [] { throw std::runtime_error("x"); }), std::runtime_error);
  CHECK(seen == std::vector<std::string>{"begin backward 1.0", "error backward 1.0"});
  observers.remove(&notes);
  observers.run(Phase::Backward, 1, 0, [] {});
  CHECK(seen.size() == 2);
}

TEST_CASE("every phase has a word") {
  CHECK(std::string(phase_name(Phase::DataWait)) == "data_wait");
  CHECK(std::string(phase_name(Phase::Checkpoint)) == "checkpoint");
}
