#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/tools/align/compare.hpp"
#include "tools/align/crafted_dump.hpp"

using namespace npu_train;
using npu_train::testing::CraftedDump;
using npu_train::testing::has;
using npu_train::testing::kInf;
using npu_train::testing::TempDir;
using ItemKind = ItemComparison::Kind;

namespace {

const std::string kLayer = "Module.fc.Linear.forward.0";

// Judges the output of the only call in two dumps, which `a` and `b` describe.
template <class Describe>
ItemComparison judged(Describe&& a, Describe&& b, const std::string& facts_a = "", const std::string& facts_b = "",
                      const CompareOptions& how = {}) {
  const TempDir dir;
  CraftedDump left(dir / "a", facts_a), right(dir / "b", facts_b);
  left.add(kLayer, a(left), CraftedDump::tensor("[1]"));
  right.add(kLayer, b(right), CraftedDump::tensor("[1]"));
  const auto result = compare_dumps(left.write(), right.write(), how);
  CHECK(result.agrees == !result.steps.at(0).calls.at(0).items.at(1).failed);
  return result.steps.at(0).calls.at(0).items.at(1);
}

using Describe = std::function<std::string(const CraftedDump&)>;

Describe saved(const at::Tensor& values, const std::string& shape, const std::string& more = "") {
  return [=](const CraftedDump& dump) { return dump.tensor("fc.pt", values, shape, more); };
}

}  // namespace

TEST_CASE("item_judge: a file whose shape differs from dump.json is not compared") {
  const auto w = at::arange(6, at::kFloat).reshape({2, 3});
  CHECK_FALSE(judged(saved(w, "[2, 3]"), saved(w, "[2, 3]")).failed);
  CHECK_FALSE(judged(saved(w.t().contiguous().t(), "[2, 3]"), saved(w, "[2, 3]")).failed);  // equal shapes with other strides
  // the first file has the transposed shape, with the same elements in memory; the second one has another shape
  for (const auto& other : {w.reshape({3, 2}), w.reshape({6})}) {
    const auto item = judged(saved(other, "[2, 3]"), saved(w, "[2, 3]"));
    CHECK(item.failed);
    CHECK(has(item.message,
              "fc.pt: the file's shape is [" + std::string(other.dim() == 2 ? "3, 2" : "6") + "], that in dump.json is [2, 3]"));
    CHECK(judged(saved(w, "[2, 3]"), saved(other, "[2, 3]")).failed);
  }
  CHECK_FALSE(judged(saved(at::ones({}), "[]"), saved(at::ones({1}), "[]")).failed);  // one element has one order
}

TEST_CASE("item_judge: a sample of elements has a shape of its own, and one seed") {
  const auto some = at::arange(3, at::kFloat);
  const auto sample = R"(, "sampled": 3)";
  CHECK_FALSE(judged(saved(some, "[4, 5]", sample), saved(some, "[4, 5]", sample)).failed);
  CHECK(has(judged(saved(some.reshape({1, 3}), "[4, 5]", sample), saved(some, "[4, 5]", sample)).message,
            "that in dump.json is [3] (a sample)"));
  // these samples have different elements, but their statistics cover all elements
  const auto other = saved(some + 1, "[4, 5]", sample), less = saved(at::arange(2, at::kFloat), "[4, 5]", R"(, "sampled": 2)");
  for (const auto& item :
       {judged(saved(some, "[4, 5]", sample), Describe(other), R"("seed": 1)", R"("seed": 2)"),
        judged(saved(some, "[4, 5]", sample), Describe(less)), judged(saved(at::ones({4, 5}), "[4, 5]"), Describe(less))})
    CHECK(((item.kind == ItemKind::Statistics) && !item.failed));
  CHECK(judged(saved(some, "[4, 5]", sample), Describe(other), R"("seed": 1)", R"("seed": 1)").failed);
}

TEST_CASE("item_judge: some of the elements are judged by the largest of all, and the statistics of all are compared") {
  const auto of = [](const at::Tensor& values, double max) -> Describe {
    return [=](const CraftedDump& dump) {
      dump.tensor("fc.pt", values, "[200000]");
      return CraftedDump::tensor("[200000]", max, "float32", R"(, "data_name": "fc.pt")");
    };
  };
  auto b = at::full({200000}, 0.5);
  b[7] = 10.0;
  for (int64_t seed = 0; seed < 5; ++seed) {
    CAPTURE(seed);
    const auto part = [&](const at::Tensor& a, double max = 10) {
      return judged(of(a, max), of(b, 10), "", "", {.sample_elements = 0.1, .seed = seed});
    };
    const auto close = part(b + 5e-3);  // 5e-3 is within 1e-3 of the maximum 10, but not of the sample's 0.5
    CHECK((close.partial && !close.failed));
    CHECK(close.metrics.elements == doctest::Approx(20000).epsilon(0.01));
    const auto apart = part(b + 0.02);
    CHECK((apart.failed && !apart.partial));  // a difference in the sample decides
    auto a = b.clone();
    a[150001] = 12.0;  // rarely in a sample, always in the statistics
    CHECK(has(part(a, 12).message, "differs by 11.5"));
  }
  const auto few = at::ones({4096});
  CHECK_FALSE(judged(saved(few, "[4096]"), saved(few, "[4096]"), "", "", {.sample_elements = 0.1}).partial);
}

TEST_CASE("item_judge: zeros on one side are a difference, not something that is not finite") {
  const auto zero = at::zeros({4}), tiny = at::full({4}, 1e-9), one = at::ones({4});
  const auto within = judged(saved(tiny, "[4]"), saved(zero, "[4]"));
  CHECK_FALSE(within.failed);
  CHECK(within.error == doctest::Approx(1));
  const auto beyond = judged(saved(one, "[4]"), saved(zero, "[4]"));
  CHECK(beyond.failed);
  CHECK(has(beyond.message, "differs by 1"));
}

TEST_CASE("item_judge: what is masked with -inf on both sides has the tolerance of the rest") {
  auto a = at::full({8}, 3.0), b = at::full({8}, 3.001);
  for (auto* t : {&a, &b}) t->slice(0, 0, 4).fill_(-kInf);
  CHECK_FALSE(judged(saved(a, "[8]"), saved(b, "[8]")).failed);
  b.slice(0, 4, 8).fill_(3.1);
  CHECK(judged(saved(a, "[8]"), saved(b, "[8]")).failed);
}

TEST_CASE("item_judge: dtypes whose files are not read are compared by statistics or checksum") {
  const auto described = [](const std::string& dtype, double max, const std::string& more = "") -> Describe {
    return [=](const CraftedDump&) { return CraftedDump::tensor("[4]", max, dtype, R"(, "data_name": "absent.pt")" + more); };
  };
  for (const std::string dtype : {"complex64", "float8_e4m3fn", "uint16"}) {
    const auto same = judged(described(dtype, 1), described(dtype, 1));
    CHECK(((same.kind == ItemKind::Statistics) && !same.failed));
    CHECK(judged(described(dtype, 1), described(dtype, 2)).failed);
    const auto crc = judged(described(dtype, 1, R"(, "md5": "00000001")"), described(dtype, 1, R"(, "md5": "00000002")"));
    CHECK(((crc.kind == ItemKind::Checksum) && crc.failed));
  }
  CHECK(judged(described("float32", 1), described("float32", 1)).failed);  // the file is missing
}

TEST_CASE("item_judge: statistics on one side and a checksum on the other have no common form") {
  const Describe crc = [](const CraftedDump&) {
    return R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "md5": "00000001"})";
  };
  const Describe statistics = [](const CraftedDump&) { return CraftedDump::tensor("[4]"); };
  const auto item = judged(crc, statistics);
  CHECK((item.kind == ItemKind::NotCompared));
  CHECK(has(item.message, "no common kind of data"));
}

TEST_CASE("item_judge: sums over integers are rounded on every device, the integers are not") {
  const auto described = [](const std::string& numbers) -> Describe {
    return [=](const CraftedDump&) { return R"({"type": "torch.Tensor", "dtype": "torch.int64", "shape": [8], )" + numbers + "}"; };
  };
  const auto target = described(R"("Max": 9, "Min": 0, "Mean": 4.5, "Norm": 16.881943016134134)");
  const auto fails = [&](const std::string& numbers) { return judged(described(numbers), Describe(target)).failed; };
  CHECK_FALSE(fails(R"("Max": 9, "Min": 0, "Mean": 4.5, "Norm": 16.88194274902344)"));
  CHECK(fails(R"("Max": 9, "Min": 0, "Mean": 4.625, "Norm": 16.88194274902344)"));
  CHECK(fails(R"("Max": 8, "Min": 0, "Mean": 4.5, "Norm": 16.881943016134134)"));
}

TEST_CASE("item_judge: unknown words and missing numbers do no harm") {
  const auto described = [](const std::string& text) -> Describe { return [=](const CraftedDump&) { return text; }; };
  // the layer that differs has a dtype of two characters, and Max without Min
  const auto half = described(R"({"type": "torch.Tensor", "dtype": "f2", "shape": [4], "Max": 65504, "Norm": 1})");
  const auto full = described(R"({"type": "torch.Tensor", "dtype": "f4", "shape": [4], "Max": 70000, "Norm": 9})");
  CHECK(judged(half, full).failed);
  CHECK(judged(full, half).failed);
}

TEST_CASE("item_judge: the state of an optimizer does not show the precision of a run") {
  const TempDir dir;
  const auto write = [&](const char* name, double gradient) {
    CraftedDump dump(dir / name);
    dump.add("Module.fc.Linear.forward.0", CraftedDump::tensor("[4]", 1, "bfloat16"));
    dump.add("Module.fc.Linear.backward.0", CraftedDump::tensor("[4]", gradient));
    for (int i = 0; i < 20; ++i) dump.add("Module.optimizer.Adam" + std::to_string(i) + ".forward.0", CraftedDump::tensor("[4]"));
    return dump.write();
  };
  CHECK(compare_dumps(write("a", 1.02), write("b", 1)).agrees);  // within the tolerance of bf16
}

TEST_CASE("item_judge: running statistics are computed in the precision of the run, weights are not") {
  const TempDir dir;
  const auto dump = [&](const char* name, double variance, double weight) {
    CraftedDump out(dir / name);
    const auto value = CraftedDump::tensor("[8, 4]", 1, "bfloat16");
    out.add_call("Module.bn1.BatchNorm2d.forward.0", R"({"input_args": [)" + value + R"(], "output": [)" + value +
                                                         R"(], "parameters": {"weight": )" + CraftedDump::tensor("[4]", weight) +
                                                         R"(, "running_var": )" + CraftedDump::tensor("[4]", variance) + "}}");
    return out.write();
  };
  const auto b = dump("b", 1, 1);
  CHECK(compare_dumps(dump("a", 1.004, 1), b).agrees);
  CHECK_FALSE(compare_dumps(dump("a", 1.3, 1), b).agrees);
  CHECK_FALSE(compare_dumps(dump("a", 1, 1.004), b).agrees);
}
