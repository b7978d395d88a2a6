// A program whose locale writes numbers differently: the files of a run must be the same as those of any other program.
#include "testing.hpp"

#include <algorithm>
#include <fstream>
#include <regex>

#include "engine/small_trainer.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/train/classifier.hpp"
#include "only_if.hpp"
#include "other_locale.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

RunConfig run_of(const fs::path& dir, int64_t epochs) {
  RunConfig c{.device = "cpu", .precision = "32-true"};
  c.model = {.name = "vit_tiny_cifar10", .options = {{"depth", 1}, {"dim", 32}, {"heads", 2}, {"patch_size", 8}, {"dropout", 0.1}}};
  c.data = {.name = "generated", .options = {{"train_size", 96}, {"val_size", 16}, {"batch_size", 8}, {"num_workers", "1"}}};
  c.optimizer = {.name = "adamw", .options = {{"lr", 0.0015}}};
  c.trainer = {.max_epochs = epochs, .log_every_n_steps = 1, .threads = 1};
  c.output = {.dir = dir.string(), .name = "run"};
  return c;
}

/// Returns the columns of metrics.csv that do not depend on time, and the names of all files without the parts that depend on time and
/// process.
std::string written_in(const fs::path& run) {
  std::string out;
  std::ifstream file(run / "metrics.csv");
  for (std::string line; std::getline(file, line);) {
    for (int column = 0; column < 3; ++column) line.erase(line.rfind(','));  // drops samples_per_second, data_wait, seconds
    out += line + "\n";
  }
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(run))
    names.push_back(
        std::regex_replace(fs::relative(entry.path(), run).string(), std::regex(R"(tfevents\.\d+\.(.*)\.\d+$)"), "tfevents.T.$1.P"));
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());  // the two event files may be from one second or from two
  for (const auto& name : names) out += name + "\n";
  return out;
}

/// Trains one epoch, and then another one with a trainer that resumes. Returns what the run has written, and parts of the log.
std::string trained(const fs::path& dir) {
  std::string log;
  const ScopedLogSink sink([&](LogLevel, std::string_view text) { log += std::string(text) + "\n"; });
  Trainer(run_of(dir, 1)).fit();
  Trainer second(run_of(dir, 2));
  CHECK(fs::path(second.resume("auto")).filename() == "epoch=001-step=12");
  second.fit();
  const auto at = log.find("resumed from");
  return written_in(second.run_dir()) + log.substr(0, log.find(dir.string())) + log.substr(log.find(" (epoch", at), 20);
}

}  // namespace

TEST_CASE("a locale of C++ streams changes no file and no checkpoint's name, and a run resumes under it") {
  const TempDir plain, other;
  const auto expected = trained(plain.path());
  REQUIRE(has(expected, "0,10,train,"));
  const OtherLocale locale;
  CHECK(trained(other.path()) == expected);
}

TEST_CASE("a locale of printf and strtod changes none" * only_if(has_german_source(), "there is no locale de_DE")) {
  const TempDir plain, other;
  const auto expected = trained(plain.path());
  const GermanNumbers locale;
  CHECK(trained(other.path()) == expected);
}
