#include "testing.hpp"

#include "npu_train/io/pth_writer.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>

#include "npu_train/io/pickle.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("a nested dict is read back: names, dtypes, values, and the leaves that are no tensors") {
  TempDir dir;
  const auto ramp = at::arange(6, at::kFloat).reshape({2, 3});
  auto group = PthValue::dict();
  group.set("lr", 0.1)
      .set("betas", PthValue::tuple({0.9, 0.999}))
      .set("nesterov", false)
      .set("params", PthValue::list({0, 1}))
      .set("foreach", {});
  auto state = PthValue::dict();
  state.set(0, PthValue::dict({{"exp_avg", ramp.t()}, {"step", at::ones({})}}));
  auto file = PthValue::dict();
  file.set("model_state_dict", PthValue::dict({{"fc.weight", ramp}, {"bn.num_batches_tracked", at::ones({}, at::kLong)}}));
  file.set("optimizer_state_dict", PthValue::dict().set("state", state).set("param_groups", PthValue::list({group})));
  file.set("epoch", int64_t{1} << 40).set("name", "x").set("empty", PthValue::list()).set("losses", PthValue::list({1.5, -2.0}));
  save_pth(dir / "a.pth", file);
  const auto read = load_pth(dir / "a.pth");
  REQUIRE(read.tensors.size() == 4);
  CHECK(read.tensors[0].first == "model_state_dict.fc.weight");
  CHECK(at::equal(read.tensors[0].second, ramp));
  CHECK(read.tensors[1].first == "model_state_dict.bn.num_batches_tracked");
  CHECK((read.tensors[1].second.scalar_type() == at::kLong));
  CHECK(read.tensors[2].first == "optimizer_state_dict.state.0.exp_avg");
  CHECK(at::equal(read.tensors[2].second, ramp.t()));
  CHECK(read.tensors[3].second.dim() == 0);
  CHECK(read.skipped ==
        std::vector<std::string>{"optimizer_state_dict.param_groups.0.lr", "optimizer_state_dict.param_groups.0.betas.0",
                                 "optimizer_state_dict.param_groups.0.betas.1", "optimizer_state_dict.param_groups.0.nesterov",
                                 "optimizer_state_dict.param_groups.0.params.0", "optimizer_state_dict.param_groups.0.params.1",
                                 "optimizer_state_dict.param_groups.0.foreach", "epoch", "name", "losses.0", "losses.1"});
}

TEST_CASE("equal values give equal files, however the tensors are laid out") {
  TempDir dir;
  const auto ramp = at::arange(6, at::kFloat).reshape({2, 3});
  const auto a = save_pth(dir / "a.pth", PthValue::dict({{"w", ramp}})),
             b = save_pth(dir / "b.pth", PthValue::dict({{"w", ramp.t().contiguous().t()}}));
  CHECK(a.checksum == b.checksum);
  CHECK(a.bytes == std::filesystem::file_size(dir / "a.pth"));
}

TEST_CASE("what is not written is an error, and leaves no file") {
  TempDir dir;
  const auto kind = [&](const PthValue& value) { return error_of([&] { save_pth(dir / "c.pth", value); }).kind(); };
  CHECK(kind(PthValue::dict({{"w", at::empty({2}, at::kComplexFloat)}})) == ErrorKind::Usage);
  CHECK(kind(at::Tensor()) == ErrorKind::Usage);
  CHECK_FALSE(std::filesystem::exists(dir / "c.pth"));
  CHECK(error_of([&] { save_pth(dir / "no folder" / "c.pth", 1); }).kind() == ErrorKind::Checkpoint);
  CHECK(error_of([] { PthValue::list().set("a", 1); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { PthValue::dict().set(0.5, 1); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { PthValue::dict().append(1); }).kind() == ErrorKind::Usage);
}
