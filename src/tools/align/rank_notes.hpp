// Notes of one rank on one step, for the comparison of ranks that train together: rank.json next to a dump.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/io/json.hpp"

namespace npu_train::detail {

// The number of values, their mean, and their variance (0 for one value).
struct Spread {
  int64_t count = 0;
  double mean = 0, variance = 0;
};

struct RankBatch {
  std::vector<int64_t> ids;           // ids of the samples; may be empty
  std::vector<std::string> contents;  // digests of the samples' inputs
  Spread means, deviations;           // spreads, over samples, of the mean and of the standard deviation of each sample's input
  double loss = 0;
};

struct RankParameter {
  std::string name;
  int64_t numel = 0;
  std::string dtype;                            // dtype of the reduced gradient
  int64_t passes = 0;                           // number of backward passes in which it had a gradient on this rank
  double local_square = 0, local_sum = 0;       // squared norm and sum of elements of this rank's own gradients, before the reduction
  double reduced_norm = 0, reduced_sum = 0;     // norm and sum of elements of the gradient after the reduction
  std::string before, reduced, clipped, after;  // digests of the weight (before, after) and gradient (reduced, clipped); "": none
};

struct RankNotes {
  int64_t step = 0;
  int rank = 0, ranks = 1;
  std::string host, version, cpu;
  int64_t threads = 0;
  bool portable = false;  // random numbers depend on the position and on a seed that all ranks share; otherwise each rank has its own seed
  std::string seed;       // seed of the portable numbers, or of the CPU's generator
  std::vector<RankBatch> batches;
  std::vector<RankParameter> parameters;
  std::vector<double> known_sums, summed;  // expected and received sums over ranks of known values
  double norm = 0, clipped_norm = 0;       // norms of all gradients before and after clipping
  double lr = 0, loss_scale = 1;
  bool taken = true;
};

inline constexpr const char* kRankNotes = "rank.json";

Json to_json(const RankNotes& notes);
// Reads a rank.json. Error(Data) names the file and the missing or invalid entry.
RankNotes read_rank_notes(const std::filesystem::path& file);

}  // namespace npu_train::detail
