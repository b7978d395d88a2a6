#include "testing.hpp"

#include "train/callbacks/overfit_batches.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::OverfitBatches;

TEST_CASE("the first batches of the data, read once, whatever the epoch") {
  Loader loader(toy_data(), Pipeline(), LoaderOptions{.batch_size = 8, .shuffle = true, .seed = 7});
  loader.begin_epoch(0);
  const auto first = loader.next(), second = loader.next();
  OverfitBatches batches(2);
  CHECK(batches.enabled());
  loader.begin_epoch(3);
  batches.fill(loader);
  loader.begin_epoch(4);
  batches.fill(loader);
  CHECK(batches.size() == 2);
  CHECK(torch::equal(batches.at(0)->input(), first->input()));
  CHECK(torch::equal(batches.at(1)->input(), second->input()));
  CHECK_FALSE(batches.at(2));
}

TEST_CASE("data with fewer batches give all that they have; 0 is off") {
  Loader loader(toy_data(20), Pipeline(), LoaderOptions{.batch_size = 8});
  OverfitBatches batches(10), off(0);
  batches.fill(loader);
  CHECK(batches.size() == 3);
  CHECK_FALSE(off.enabled());
}
