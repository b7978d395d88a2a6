#include "testing.hpp"

#include <ATen/TensorOperators.h>

#include "npu_train/core/error.hpp"
#include "npu_train/tools/probe/dist_probe.hpp"

using namespace npu_train;

namespace {

struct Done final : Collective {
  bool done() override { return true; }
  void wait() override {}
};

// A single rank whose transport changes one element of one dtype and refuses another dtype.
class FaultyGroup final : public ProcessGroup {
 public:
  explicit FaultyGroup(at::ScalarType wrong, at::ScalarType refused) : wrong_(wrong), refused_(refused) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::unique_ptr<Collective> all_to_all(const at::Tensor& out, const at::Tensor& in) override { return copy(out, in); }
  std::unique_ptr<Collective> all_reduce(const at::Tensor& tensor) override { return copy(tensor, tensor.clone()); }
  std::unique_ptr<Collective> all_gather(const at::Tensor& out, const at::Tensor& in) override { return copy(out, in); }
  std::vector<std::string> gather(const std::string& call, const std::string& own) override {
    check(call != lost_in, ErrorKind::Peer, call.c_str(), "rank 0 of 1 lost contact with another rank");
    return {own};
  }
  using ProcessGroup::gather;
  void main_first(const std::function<void()>& work) override { work(); }
  void broadcast(const at::Tensor& /*tensor*/) override {}
  void abandon() noexcept override {}

  std::string lost_in{};

 private:
  std::unique_ptr<Collective> copy(const at::Tensor& out, const at::Tensor& in) const {
    check(out.scalar_type() != refused_, ErrorKind::Peer, "all_gather", "Invalid scalar type");
    out.copy_(in);
    if (out.scalar_type() == wrong_) out[66] = out[66] + 1;
    return std::make_unique<Done>();
  }
  at::ScalarType wrong_, refused_;
};

const CollectiveCheck& check_of(const DistProbe& probe, const std::string& collective, const std::string& dtype) {
  for (const auto& check : probe.checks)
    if (check.collective == collective && check.dtype == dtype) return check;
  FAIL("no such check");
  return probe.checks[0];
}

}  // namespace

TEST_CASE("one wrong element and a refused dtype are found in every collective, and nothing else") {
  FaultyGroup group(at::kInt, at::kBFloat16);
  std::vector<std::string> parts;
  const auto probe = probe_collectives(group, [&](const std::string& part) { parts.push_back(part); });
  CHECK(!probe.ok());
  CHECK(parts.size() == probe.checks.size());
  for (const char* collective : {"all_to_all", "all_reduce", "all_gather"}) {
    CHECK(check_of(probe, collective, "int32").problem.find("rank 0: element 66 is ") == 0);
    CHECK(check_of(probe, collective, "bf16").problem.find("Invalid scalar type") != std::string::npos);
    for (const char* dtype : {"int8", "uint8", "int64", "fp16", "fp32", "fp64"}) CHECK(check_of(probe, collective, dtype).problem == "");
  }
  CHECK(check_of(probe, "gather", "text").problem == "");
  const auto finding = judge_collectives({probe})[0];
  CHECK((finding.verdict == Verdict::Fail));
  CHECK(finding.name == "1 rank");
  CHECK(finding.finding.find("27 of 33") == 0);
}

TEST_CASE("a lost rank ends the probe") {
  FaultyGroup group(at::kComplexFloat, at::kComplexFloat);
  group.lost_in = "doctor";
  CHECK_THROWS_AS(probe_collectives(group), Error);
}

TEST_CASE("a probe survives its JSON, and its tables fit a terminal") {
  DistProbe probe{.ranks = 8, .failure = "rank 3 of 8 did not answer"};
  for (const char* dtype : {"int8", "bf16"})
    for (const char* collective : {"all_to_all", "all_reduce", "all_gather", "broadcast"})
      probe.checks.push_back({collective, dtype, std::string(dtype) == "bf16" ? "rank 1: element 0 is 3" : ""});
  for (const char* collective : {"all_to_all", "all_reduce", "all_gather", "broadcast"})
    for (const int64_t bytes : {512, 1 << 16, 1 << 20, 1 << 24}) probe.speeds.push_back({collective, bytes, 0.012345});
  const auto again = dist_probe_from(to_json(probe), "x");
  CHECK(to_json(again).dump() == to_json(probe).dump());
  CHECK(again.checks.size() == 8);
  CHECK(again.speeds.size() == 16);
  Report shown("collectives");
  add_collectives(shown, {probe, probe});
  const auto text = shown.text(80);
  size_t longest = 0, start = 0;
  for (size_t end; (end = text.find('\n', start)) != std::string::npos; start = end + 1) longest = std::max(longest, end - start);
  CHECK(longest <= 80);
  CHECK(text.find("never") != std::string::npos);
  CHECK(judge_collectives({probe})[0].finding == "rank 3 of 8 did not answer");
  CHECK_THROWS_AS(dist_probe_from(parse_json("{\"ranks\": 2}", "x"), "x"), Error);
}
