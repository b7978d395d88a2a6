#include "testing.hpp"

#include "npu_train/core/shell_word.hpp"

using npu_train::shell_word;

TEST_CASE("words of a shell are quoted where they must be") {
  CHECK(shell_word("trainer.max_epochs=3") == "trainer.max_epochs=3");
  CHECK(shell_word("output.dir=") == "output.dir=");
  CHECK(shell_word("") == "''");
  CHECK(shell_word("output.dir=\"\"") == "'output.dir=\"\"'");
  CHECK(shell_word("it's") == "'it'\\''s'");
  CHECK(shell_word("a b;c") == "'a b;c'");
  CHECK(npu_train::shell_words({"train_app", "c.yaml", "output.dir=my runs"}) == "train_app c.yaml 'output.dir=my runs'");
}
