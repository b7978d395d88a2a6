// Gradients of ranks in processes of their own, over Gloo, compared with one process that accumulates all micro-batches.
#include "npu_train/dist/gradient_reducer.hpp"

#include "testing.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "dist/rank_processes.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

using Words = std::vector<std::string>;

// Runs a process that is started alone, without other ranks.
CommandResult run_alone(Words arguments) {
  arguments.insert(arguments.begin(), kRankProgram);
  return run_command(arguments, {.deadline = std::chrono::minutes(10)});
}

std::vector<CommandResult> gradients(int ranks, Words arguments) {
  arguments.insert(arguments.begin(), {kRankProgram, "gradients"});
  return run_ranks(ranks, arguments);
}

// Returns the outputs of a scenario by variant and rank. The processes are started once for all variants; each variant has a group of its
// own.
std::vector<Words> outputs(int ranks, const std::string& scenario, const std::vector<Words>& variants) {
  Words command{kRankProgram, scenario};
  for (size_t v = 0; v < variants.size(); ++v) {
    if (v > 0) command.push_back("/");
    command.insert(command.end(), variants[v].begin(), variants[v].end());
  }
  std::vector<Words> out(variants.size());
  for (const auto& rank : run_ranks(ranks, command)) {
    REQUIRE_MESSAGE(rank.ok(), rank.output);
    size_t begin = 0;
    for (auto& of_variant : out) {
      const auto end = std::min(rank.output.find("/\n", begin), rank.output.size());
      of_variant.push_back(rank.output.substr(begin, end - begin));
      begin = end + 2;
    }
  }
  return out;
}

// Returns the output without the lines that only ranks print.
std::string gradients_of(const std::string& output) {
  std::string out;
  for (size_t begin = 0; begin < output.size();) {
    const auto end = output.find('\n', begin) + 1;
    const auto line = output.substr(begin, end - begin);
    if (!line.starts_with("sums")) out += line;
    begin = end;
  }
  return out;
}

const std::string& of_one_process(int micro_batches, const std::string& integers = "integers=0") {
  static std::map<std::pair<int, std::string>, std::string> known;  // kept, because many cases compare with the same output
  auto& output = known[{micro_batches, integers}];
  if (output.empty()) {
    const auto one = run_alone({"one_process", "micro_batches=" + std::to_string(micro_batches), integers});
    REQUIRE(one.ok());
    output = one.output;
  }
  return output;
}

// Checks that every rank has these gradients, with every variant.
void check_gradients(int ranks, const std::vector<Words>& variants, const std::string& expected) {
  const auto all = outputs(ranks, "gradients", variants);
  for (size_t v = 0; v < variants.size(); ++v)
    for (const auto& output : all[v]) {
      CAPTURE(ranks);
      CAPTURE(v);
      CHECK(gradients_of(output) == expected);
    }
}

}  // namespace

TEST_CASE("N ranks have the bits of one process that accumulates N micro-batches, for any size of buckets") {
  for (const int ranks : {2, 3, 4}) check_gradients(ranks, {{"bucket_kib=2"}, {"bucket_kib=4000"}}, of_one_process(ranks));
}

TEST_CASE("reduce: micro_batch has those bits for several micro-batches on each rank") {
  for (const int micro_batches : {2, 3})
    check_gradients(2, {{"reduce=micro_batch", "micro_batches=" + std::to_string(micro_batches)}}, of_one_process(2 * micro_batches));
}

TEST_CASE("the sums that ranks have in shards are those of one process, and parameters have no gradient of their own") {
  for (const int ranks : {2, 3, 4}) {
    const std::string bucket = ranks == 3 ? "bucket_kib=4000" : "bucket_kib=2";
    check_gradients(ranks, {{"sharding=optimizer", bucket}, {"sharding=gradients", bucket}}, of_one_process(ranks));
  }
}

TEST_CASE("complete parameters in shards have the same sums, and each is on one rank") {
  std::vector<Words> variants;
  for (const char* shard_by : {"shard_by=layer", "shard_by=parameter_size"})
    for (const char* sharding : {"sharding=optimizer", "sharding=gradients"}) variants.push_back({sharding, shard_by, "bucket_kib=8"});
  check_gradients(3, variants, of_one_process(3));
  for (const auto& variant : outputs(2, "shards", {{"shard_by=layer"}, {"shard_by=parameter_size"}}))
    for (const auto& output : variant) CHECK(has(output, "parameters on several ranks: 0\n"));
  for (const auto& rank : gradients(2, {"shard_by=layer"})) {
    CHECK(rank.status == 2);
    CHECK(has(rank.output, "layer selects how zero1 and zero2 divide; allowed with other strategies: elements"));
  }
}

TEST_CASE("shards add the micro-batches of a window in order, also of ranks that have fewer") {
  for (const int micro_batches : {1, 3}) {
    const Words common{"reduce=micro_batch", "short=1", "micro_batches=" + std::to_string(micro_batches)};
    std::vector<Words> variants{common, common};
    variants[0].push_back("sharding=optimizer");
    variants[1].push_back("sharding=gradients");
    check_gradients(2, variants, of_one_process(2 * micro_batches - 1));
  }
}

TEST_CASE("native sums in shards, and those of a program that was started alone") {
  check_gradients(2, {{"sharding=optimizer", "reduction=native", "reduce=auto"}, {"sharding=gradients", "reduction=native", "reduce=auto"}},
                  of_one_process(2));
  for (const char* sharding : {"sharding=optimizer", "sharding=gradients"}) {
    const auto alone = run_alone({"gradients", "micro_batches=2", "reduce=micro_batch", sharding});
    REQUIRE_MESSAGE(alone.ok(), alone.output);
    CHECK(gradients_of(alone.output) == of_one_process(2));
  }
}

TEST_CASE("each rank has a slice of each parameter, of blocks of 64 elements, that shares its memory") {
  for (const int ranks : {2, 3}) {
    CAPTURE(ranks);
    const auto all = run_ranks(ranks, {kRankProgram, "shards"});
    for (const auto& rank : all) CHECK_MESSAGE(rank.ok(), rank.output);
    // The parts are nearly equal, and together contain all elements.
    std::vector<int64_t> elements;
    for (const auto& rank : all) elements.push_back(std::stoll(rank.output.substr(rank.output.rfind("elements ") + 9)));
    const auto sum = std::accumulate(elements.begin(), elements.end(), int64_t{0});
    CHECK(sum == std::stoll(all[0].output.substr(all[0].output.rfind(" of ") + 4)));
    for (const auto of_rank : elements) CHECK(of_rank <= sum / ranks + 64 * 8 * ranks);
    for (const auto& rank : all) {
      CHECK(has(rank.output, "parameters are those of rank 0 to the bit"));
      CHECK(has(rank.output, "a slice of conv has "));
      CHECK(has(rank.output, " elements; given: 216"));
    }
  }
}

TEST_CASE("16 bits: fp32 gradients are rounded before and after their sum, which is in fp32; others travel as they are") {
  for (const int ranks : {2, 3})
    for (const std::string values : {"bf16", "fp16"}) {
      CAPTURE(values);
      const auto expected = run_alone({"one_process_in_16_bits", "values=" + values, "ranks=" + std::to_string(ranks)});
      REQUIRE(expected.ok());
      REQUIRE(expected.output != of_one_process(ranks));
      std::vector<Words> variants{{"compression=" + values}};
      if (values == "bf16") variants.push_back({"reduce_dtype=bf16"});
      check_gradients(ranks, variants, expected.output);
    }
  for (const auto& rank : gradients(2, {"reduce_dtype=bf16", "reduction=native"})) {
    CHECK(rank.status == 2);
    CHECK(has(rank.output, "dist.reduction=native does not do"));
  }
}

TEST_CASE("a rank with fewer micro-batches, or none, takes part") {
  for (const int micro_batches : {1, 2})  // the last micro-batch is rank 1's
    check_gradients(2, {{"reduce=micro_batch", "short=1", "micro_batches=" + std::to_string(micro_batches)}},
                    of_one_process(2 * micro_batches - 1));
}

TEST_CASE("reduce: window gives equal gradients on all ranks, and again in another run") {
  const auto first = gradients(3, {"micro_batches=2"});
  const auto second = gradients(3, {"micro_batches=2", "bucket_kib=2"});
  for (size_t r = 0; r < first.size(); ++r) {
    REQUIRE_MESSAGE(first[r].ok(), first[r].output);
    CHECK(first[r].output == first[0].output);
    CHECK(second[r].output == first[0].output);
  }
  CHECK(has(first[0].output, "sums 6 0.30000000000000004\n"));
}

TEST_CASE("native sums are equal on all ranks; for two ranks they have the bits of one process") {
  check_gradients(2, {{"reduction=native"}}, of_one_process(2));
}

TEST_CASE(
    "groups of ranks add integers exactly, also where the last group is smaller, with shards, with dist.debug and a limit in flight") {
  std::vector<Words> variants;
  for (const char* option : {"in_flight=1", "debug=1", "sharding=optimizer", "sharding=gradients"})
    variants.push_back({"reduction=native", "group_size=2", "integers=1", "bucket_kib=2", option});
  for (const int ranks : {3, 4}) check_gradients(ranks, variants, of_one_process(ranks, "integers=1"));
}

TEST_CASE("groups of ranks get equal bits of numbers of any size, compressed between groups or not") {
  std::vector<Words> variants;
  for (const char* option : {"compression=none", "compression=int8", "compression=topk:0.1+int8", "compression=powersgd:2"})
    variants.push_back({"reduction=auto", "group_size=2", option});
  for (const auto& variant : outputs(3, "gradients", variants))
    for (const auto& output : variant) CHECK(output == variant[0]);
}

TEST_CASE("the loss of a rank reaches all groups, whether it leads one or not") {
  for (const int lost : {0, 1}) {
    const auto all = run_ranks(3, {kRankProgram, "failure", "how=throw", "rank=" + std::to_string(lost), "reduction=native", "group_size=2",
                                   "in_flight=2", "compression=int8"});
    for (int r = 0; r < 3; ++r) {
      CAPTURE(lost);
      CAPTURE(r);
      CHECK_MESSAGE(all[static_cast<size_t>(r)].status == (r == lost ? 3 : 9), all[static_cast<size_t>(r)].output);
    }
  }
}

TEST_CASE("parameters that differ are named, on every rank") {
  for (const auto& rank : run_ranks(2, {kRankProgram, "other_parameters"})) {
    CHECK(rank.status == 9);
    CHECK(has(rank.output,
              "the parameters of rank 1 differ from those of rank 0: 'matrix Float [60, 33] of strides [33, 1]' instead of "
              "'matrix Float [61, 33] of strides [33, 1]'"));
  }
  for (const auto& rank : run_ranks(2, {kRankProgram, "other_parameters", "computed=1"})) {
    CHECK(rank.status == 9);
    CHECK(has(rank.output,
              "of rank 1 differ from those of rank 0: 'matrix Float [61, 33] of strides [33, 1] computed in BFloat16' instead of"));
  }
}

TEST_CASE("a program that was started alone runs the same code") {
  for (const char* reduce : {"reduce=window", "reduce=micro_batch"}) {
    const auto alone = run_alone({"gradients", "micro_batches=3", reduce});
    REQUIRE_MESSAGE(alone.ok(), alone.output);
    CHECK(gradients_of(alone.output) == of_one_process(3));
  }
}

TEST_CASE("options that contradict each other are refused before anything is sent") {
  const auto group = ProcessGroup::from_environment();  // only this process
  const auto refused = [&](const DistOptions& options) {
    const auto e = error_of([&] { GradientReducer({}, group, options); });
    CHECK((e.kind() == ErrorKind::Usage));
    return std::string(e.what());
  };
  CHECK(has(refused({.reduction = "native", .reduce = "micro_batch"}), "dist.reduce"));
  CHECK(has(refused({.reduction = "ring"}), "dist.reduction"));
  CHECK(has(refused({.bucket_mib = 0}), "dist.bucket_mib"));
}
