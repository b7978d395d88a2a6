#include "testing.hpp"

#include <thread>

#include "npu_train/base/current_batch.hpp"

using namespace npu_train;

TEST_CASE("the batch of this thread, while the object lives") {
  CHECK(CurrentBatch::get() == nullptr);
  Batch outer, inner;
  {
    const CurrentBatch shown(outer);
    CHECK(CurrentBatch::get() == &outer);
    const Batch* elsewhere = &outer;
    std::thread([&] { elsewhere = CurrentBatch::get(); }).join();
    CHECK(elsewhere == nullptr);
    {
      const CurrentBatch nested(inner);
      CHECK(CurrentBatch::get() == &inner);
    }
    CHECK(CurrentBatch::get() == &outer);
  }
  CHECK(CurrentBatch::get() == nullptr);
}
