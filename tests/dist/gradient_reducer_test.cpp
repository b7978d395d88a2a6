// Gradients of ranks in processes of their own, over Gloo, against one process that accumulates all micro-batches.
#include "npu_train/dist/gradient_reducer.hpp"

#include "testing.hpp"

#include <numeric>

#include "dist/ranks.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

std::vector<CommandResult> gradients(int ranks, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {kRankProgram, "gradients"});
  return run_ranks(ranks, arguments);
}

// Without the lines that only ranks print.
std::string gradients_of(const CommandResult& result) {
  std::string out;
  for (size_t begin = 0; begin < result.output.size();) {
    const auto end = result.output.find('\n', begin) + 1;
    const auto line = result.output.substr(begin, end - begin);
    if (!line.starts_with("sums")) out += line;
    begin = end;
  }
  return out;
}

std::string of_one_process(int micro_batches, const char* integers = "integers=0") {
  const auto one = run_command({kRankProgram, "one_process", "micro_batches=" + std::to_string(micro_batches), integers});
  REQUIRE(one.ok());
  return one.output;
}

}  // namespace

TEST_CASE("N ranks have the bits of one process that accumulates N micro-batches, for any size of buckets") {
  for (const int ranks : {2, 3, 4})
    for (const char* bucket : {"bucket_kib=2", "bucket_kib=4000"}) {
      CAPTURE(ranks);
      CAPTURE(bucket);
      const auto expected = of_one_process(ranks);
      for (const auto& rank : gradients(ranks, {bucket})) {
        REQUIRE_MESSAGE(rank.ok(), rank.output);
        CHECK(gradients_of(rank) == expected);
      }
    }
}

TEST_CASE("reduce: micro_batch has those bits for several micro-batches on each rank") {
  for (const int micro_batches : {2, 3}) {
    CAPTURE(micro_batches);
    const auto expected = of_one_process(2 * micro_batches);
    for (const auto& rank : gradients(2, {"reduce=micro_batch", "micro_batches=" + std::to_string(micro_batches)})) {
      REQUIRE_MESSAGE(rank.ok(), rank.output);
      CHECK(gradients_of(rank) == expected);
    }
  }
}

TEST_CASE("the sums that ranks have in shards are those of one process, and parameters have no gradient of their own") {
  for (const char* sharding : {"sharding=optimizer", "sharding=gradients"})
    for (const int ranks : {2, 3, 4}) {
      CAPTURE(sharding);
      CAPTURE(ranks);
      const auto expected = of_one_process(ranks);
      for (const auto& rank : gradients(ranks, {sharding, ranks == 3 ? "bucket_kib=4000" : "bucket_kib=2"})) {
        REQUIRE_MESSAGE(rank.ok(), rank.output);
        CHECK(gradients_of(rank) == expected);
      }
    }
}

TEST_CASE("complete parameters in shards have the same sums, and each is on one rank") {
  for (const char* shard_by : {"shard_by=layer", "shard_by=parameter_size"})
    for (const char* sharding : {"sharding=optimizer", "sharding=gradients"}) {
      CAPTURE(shard_by);
      const auto expected = of_one_process(3);
      for (const auto& rank : gradients(3, {sharding, shard_by, "bucket_kib=8"})) {
        REQUIRE_MESSAGE(rank.ok(), rank.output);
        CHECK(gradients_of(rank) == expected);
      }
      for (const auto& rank : run_ranks(2, {kRankProgram, "shards", shard_by})) {
        CHECK_MESSAGE(rank.ok(), rank.output);
        CHECK(has(rank.output, "parameters on several ranks: 0\n"));
      }
    }
  for (const auto& rank : gradients(2, {"shard_by=layer"})) {
    CHECK(rank.status == 2);
    CHECK(has(rank.output, "layer selects how zero1 and zero2 divide; allowed with other strategies: elements"));
  }
}

TEST_CASE("shards add the micro-batches of a window in order, also of ranks that have fewer") {
  for (const char* sharding : {"sharding=optimizer", "sharding=gradients"})
    for (const int micro_batches : {1, 3}) {
      CAPTURE(sharding);
      CAPTURE(micro_batches);
      const auto expected = of_one_process(2 * micro_batches - 1);
      for (const auto& rank : gradients(2, {sharding, "reduce=micro_batch", "short=1", "micro_batches=" + std::to_string(micro_batches)})) {
        REQUIRE_MESSAGE(rank.ok(), rank.output);
        CHECK(gradients_of(rank) == expected);
      }
    }
}

TEST_CASE("native sums in shards, and those of a program that was started alone") {
  const auto expected = of_one_process(2);
  for (const char* sharding : {"sharding=optimizer", "sharding=gradients"}) {
    CAPTURE(sharding);
    for (const auto& rank : gradients(2, {sharding, "reduction=native", "reduce=auto"})) {
      REQUIRE_MESSAGE(rank.ok(), rank.output);
      CHECK(gradients_of(rank) == expected);
    }
    const auto alone = run_command({kRankProgram, "gradients", "micro_batches=2", "reduce=micro_batch", sharding});
    REQUIRE_MESSAGE(alone.ok(), alone.output);
    CHECK(gradients_of(alone) == expected);
  }
}

TEST_CASE("each rank has a slice of each parameter, of blocks of 64 elements, that shares its memory") {
  for (const int ranks : {2, 3}) {
    CAPTURE(ranks);
    const auto all = run_ranks(ranks, {kRankProgram, "shards"});
    for (const auto& rank : all) CHECK_MESSAGE(rank.ok(), rank.output);
    // The parts are nearly equal, and together they are all elements.
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
    for (const auto& values : {std::string("bf16"), std::string("fp16")}) {
      CAPTURE(ranks);
      CAPTURE(values);
      const auto expected = run_command({kRankProgram, "one_process_in_16_bits", "values=" + values, "ranks=" + std::to_string(ranks)});
      REQUIRE(expected.ok());
      REQUIRE(expected.output != of_one_process(ranks));
      for (const auto& option : {"compression=" + values, values == "bf16" ? std::string("reduce_dtype=bf16") : std::string()}) {
        if (option.empty()) continue;
        for (const auto& rank : gradients(ranks, {option})) {
          REQUIRE_MESSAGE(rank.ok(), rank.output);
          CHECK(gradients_of(rank) == expected.output);
        }
      }
    }
  for (const auto& rank : gradients(2, {"reduce_dtype=bf16", "reduction=native"})) {
    CHECK(rank.status == 2);
    CHECK(has(rank.output, "dist.reduction=native does not do"));
  }
}

TEST_CASE("a rank with fewer micro-batches, or none, takes part") {
  for (const int micro_batches : {1, 2}) {
    CAPTURE(micro_batches);
    const auto expected = of_one_process(2 * micro_batches - 1);  // the last one is of rank 1
    for (const auto& rank : gradients(2, {"reduce=micro_batch", "short=1", "micro_batches=" + std::to_string(micro_batches)})) {
      REQUIRE_MESSAGE(rank.ok(), rank.output);
      CHECK(gradients_of(rank) == expected);
    }
  }
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
  const auto expected = of_one_process(2);
  for (const auto& rank : gradients(2, {"reduction=native"})) {
    REQUIRE_MESSAGE(rank.ok(), rank.output);
    CHECK(gradients_of(rank) == expected);
  }
}

TEST_CASE(
    "groups of ranks add integers exactly, also where the last group is smaller, with shards, with dist.debug and a limit in flight") {
  for (const int ranks : {3, 4}) {
    const auto expected = of_one_process(ranks, "integers=1");
    for (const char* option : {"in_flight=1", "debug=1", "sharding=optimizer", "sharding=gradients"}) {
      CAPTURE(ranks);
      CAPTURE(option);
      for (const auto& rank : gradients(ranks, {"reduction=native", "group_size=2", "integers=1", "bucket_kib=2", option})) {
        REQUIRE_MESSAGE(rank.ok(), rank.output);
        CHECK(gradients_of(rank) == expected);
      }
    }
  }
}

TEST_CASE("groups of ranks get equal bits of numbers of any size, compressed between groups or not") {
  for (const char* option : {"compression=none", "compression=int8", "compression=topk:0.1+int8", "compression=powersgd:2"}) {
    CAPTURE(option);
    const auto all = gradients(3, {"reduction=auto", "group_size=2", option});
    for (const auto& rank : all) {
      REQUIRE_MESSAGE(rank.ok(), rank.output);
      CHECK(rank.output == all[0].output);
    }
  }
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
  const auto expected = of_one_process(3);
  for (const char* reduce : {"reduce=window", "reduce=micro_batch"}) {
    const auto alone = run_command({kRankProgram, "gradients", "micro_batches=3", reduce});
    REQUIRE_MESSAGE(alone.ok(), alone.output);
    CHECK(gradients_of(alone) == expected);
  }
}

TEST_CASE("options that contradict each other are refused before anything is sent") {
  const auto group = ProcessGroup::from_environment();  // of this process alone
  const auto refused = [&](const DistOptions& options) {
    const auto e = error_of([&] { GradientReducer({}, group, options); });
    CHECK((e.kind() == ErrorKind::Usage));
    return std::string(e.what());
  };
  CHECK(has(refused({.reduction = "native", .reduce = "micro_batch"}), "dist.reduce"));
  CHECK(has(refused({.reduction = "ring"}), "dist.reduction"));
  CHECK(has(refused({.bucket_mib = 0}), "dist.bucket_mib"));
}
