#include "npu_train/tools/probe/dist_probe.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "npu_train/core/error.hpp"
#include "npu_train/core/median.hpp"
#include "npu_train/core/message_text.hpp"

namespace npu_train {
namespace {

constexpr int64_t kElements = 67;     // elements of a rank's part; not a multiple of a vector's length
constexpr int64_t kLargestSum = 120;  // largest sum over all ranks; int8 and bf16 represent it exactly

struct NamedType {
  const char* name;
  at::ScalarType type;
};
constexpr std::array<NamedType, 8> kTypes = {{{"int8", at::kChar},
                                              {"uint8", at::kByte},
                                              {"int32", at::kInt},
                                              {"int64", at::kLong},
                                              {"fp16", at::kHalf},
                                              {"bf16", at::kBFloat16},
                                              {"fp32", at::kFloat},
                                              {"fp64", at::kDouble}}};

struct Size {
  int64_t bytes;
  int repeats;
};
constexpr std::array<Size, 4> kSizes = {{{512, 50}, {1 << 16, 20}, {1 << 20, 8}, {1 << 24, 3}}};
const std::array<const char*, 4> kCollectives = {"all_to_all", "all_reduce", "all_gather", "broadcast"};

// Returns element i of the data from rank `from` to rank `to`. It is not negative, and sums over all ranks are exact in every dtype.
int64_t value(int ranks, int from, int to, int64_t i) {
  if (from >= kLargestSum) return 0;
  const auto values = std::clamp<int64_t>(kLargestSum / std::min<int64_t>(ranks, kLargestSum) + 1, 2, 13);
  return (i * 7 + from * 5 + to * 3) % values;
}

at::Tensor part(const NamedType& type, const std::function<int64_t(int64_t)>& element, int parts = 1) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < parts * kElements; ++i) values.push_back(element(i));
  return at::tensor(at::ArrayRef<int64_t>(values)).to(type.type);
}

// Describes the first element with a wrong value; "" if there is none.
std::string difference(const at::Tensor& got, const at::Tensor& expected) {
  const auto a = got.to(at::kDouble), b = expected.to(at::kDouble);
  for (int64_t i = 0; i < a.numel(); ++i) {
    const auto x = a.const_data_ptr<double>()[i], y = b.const_data_ptr<double>()[i];
    if (!(x == y)) return str_cat("element ", i, " is ", x, "; it must be ", y);
  }
  return "";
}

// Returns this rank's problem with a collective; "" if the values are right.
std::string values_of(ProcessGroup& group, const std::string& collective, const NamedType& type) {
  const int n = group.size(), me = group.rank();
  const auto own = part(type, [&](int64_t i) { return value(n, me, 0, i); });
  const auto all = [&](auto&& element) {
    return part(
        type, [&](int64_t i) { return element(static_cast<int>(i / kElements), i % kElements); }, n);
  };
  if (collective == "broadcast") {
    group.broadcast(own);
    return difference(own, part(type, [&](int64_t i) { return value(n, 0, 0, i); }));
  }
  if (collective == "all_reduce") {
    group.all_reduce(own)->wait();
    return difference(own, part(type, [&](int64_t i) {
                        int64_t sum = 0;
                        for (int r = 0; r < n; ++r) sum += value(n, r, 0, i);
                        return sum;
                      }));
  }
  auto out = at::full({n * kElements}, 99, type.type);
  if (collective == "all_gather") {
    group.all_gather(out, own)->wait();
    return difference(out, all([&](int r, int64_t i) { return value(n, r, 0, i); }));
  }
  group.all_to_all(out, all([&](int r, int64_t i) { return value(n, me, r, i); }))->wait();
  return difference(out, all([&](int r, int64_t i) { return value(n, r, me, i); }));
}

// Gathers texts of several lengths, of which the first is empty. The ranks exchange such texts in agreements.
std::string texts_of(ProcessGroup& group) {
  const auto text = [](size_t r) { return std::string(r * 700, static_cast<char>('a' + r % 26)); };
  const auto all = group.gather("doctor texts", text(static_cast<size_t>(group.rank())));
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r] != text(r)) return str_cat("the text of rank ", r, " has arrived with other content");
  return "";
}

// Runs a check and shares its result with all ranks; a rank that cannot share it is lost.
template <class Fn>
void add_check(ProcessGroup& group, DistProbe& probe, CollectiveCheck check, Fn&& fn) {
  std::string problem;
  try {
    problem = fn();
  } catch (const std::exception& e) {
    problem = detail::first_line(e.what());
  }
  const auto all = group.gather("doctor", problem);
  const auto first = std::find_if(all.begin(), all.end(), [](const auto& p) { return !p.empty(); });
  if (first != all.end()) check.problem = str_cat("rank ", first - all.begin(), ": ", *first);
  probe.checks.push_back(std::move(check));
}

void run_once(ProcessGroup& group, const std::string& collective, const at::Tensor& whole, const at::Tensor& other) {
  if (collective == "broadcast") return group.broadcast(whole);
  if (collective == "all_reduce") return group.all_reduce(whole)->wait();
  if (collective == "all_gather") return group.all_gather(other, whole.narrow(0, 0, whole.numel() / group.size()))->wait();
  group.all_to_all(other, whole)->wait();
}

CollectiveSpeed speed_of(ProcessGroup& group, const std::string& collective, const Size& size) {
  const auto numel = std::max<int64_t>(1, size.bytes / 4 / group.size()) * group.size();
  const auto whole = at::full({numel}, 0, at::kFloat), other = at::empty({numel}, at::kFloat);
  std::vector<double> times;
  for (int i = 0; i < size.repeats; ++i) {
    group.barrier("doctor");
    const auto start = std::chrono::steady_clock::now();
    run_once(group, collective, whole, other);
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  double slowest = 0;
  for (const auto& rank : group.gather("doctor", std::vector<double>{upper_median(times)})) slowest = std::max(slowest, rank[0]);
  return {.collective = collective, .bytes = size.bytes, .seconds = slowest};
}

}  // namespace

bool DistProbe::ok() const {
  return failure.empty() && std::all_of(checks.begin(), checks.end(), [](const auto& check) { return check.problem.empty(); });
}

DistProbe probe_collectives(ProcessGroup& group, const std::function<void(const std::string& part)>& progress) {
  const auto at = [&](const std::string& name) {
    if (progress) progress(name);
  };
  DistProbe out{.ranks = group.size()};
  at("gather of texts");
  add_check(group, out, {"gather", "text", {}}, [&] { return texts_of(group); });
  for (const std::string collective : kCollectives)
    for (const auto& type : kTypes) {
      at(collective + " of " + type.name);
      add_check(group, out, {collective, type.name, {}}, [&] { return values_of(group, collective, type); });
    }
  if (group.size() == 1) return out;
  for (const std::string collective : kCollectives)
    for (const auto& size : kSizes) {
      at(collective + " of " + std::to_string(size.bytes) + " bytes");
      out.speeds.push_back(speed_of(group, collective, size));
    }
  return out;
}

}  // namespace npu_train
