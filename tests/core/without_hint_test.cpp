#include "testing.hpp"

#include "npu_train/core/error.hpp"
#include "npu_train/core/without_hint.hpp"

using namespace npu_train;

TEST_CASE("a message without its hint") {
  CHECK(without_hint(Error(ErrorKind::Usage, "Loader", "no batch", "look; again").what()) == "[Loader] no batch");
  CHECK(without_hint(Error(ErrorKind::Usage, "Loader", "no batch").what()) == "[Loader] no batch");
}
