// Parses the output of `npu-smi info`, leniently, since its columns change between versions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace npu_train::detail {

struct NpuChip {
  int64_t npu = 0, chip = 0;
  std::string name;    // "910B3"; on Atlas A3 only "Ascend910"
  std::string health;  // "OK", "Warning", "Alarm", "Critical"
  std::string bus;
  int64_t memory_used = 0, memory_total = 0;  // MB; 0 if unknown
};

struct NpuProcess {
  int64_t npu = 0, chip = 0, pid = 0;
  std::string name;
  int64_t memory = 0;  // MB
};

struct NpuSmi {
  std::string version;        // version of npu-smi, which is also the driver's
  bool physical_ids = false;  // layout of cards with two chips (Atlas A3)
  std::vector<NpuChip> chips;
  std::vector<NpuProcess> processes;
};

// Reads at most 1,024 chips and processes; invalid rows are omitted.
NpuSmi parse_npu_smi(std::string_view text);

}  // namespace npu_train::detail
