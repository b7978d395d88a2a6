#include "tools/doctor/npu_smi.hpp"

#include <algorithm>

#include "tools/doctor/parse.hpp"

namespace npu_train::detail {
namespace {

constexpr size_t kMostRows = 1024;

// Returns the cells of a row "| a | b | c |".
std::vector<std::string> table_cells(std::string_view line) {
  auto cells = split(trimmed(line), '|');
  if (cells.size() < 3 || !trimmed(cells.front()).empty() || !trimmed(cells.back()).empty()) return {};
  cells.erase(cells.begin());
  cells.pop_back();
  for (auto& cell : cells) cell = trimmed(cell);
  return cells;
}

// Reads the last "3165 / 65536" of a cell, which is the memory of the card itself.
void read_memory(const std::string& cell, NpuChip& chip) {
  const auto slash = cell.rfind('/');
  if (slash == std::string::npos) return;
  const auto before = words(cell.substr(0, slash)), after = words(cell.substr(slash + 1));
  if (before.empty() || after.empty()) return;
  chip.memory_used = std::max<int64_t>(0, whole_number(before.back()).value_or(0));
  chip.memory_total = std::max<int64_t>(0, whole_number(after.front()).value_or(0));
}

// Reads one of a chip's two rows: "| 0 910B3 | OK | power temperature pages |" and "| 0 | 0000:C1:00.0 | use memory |".
void read_chip_row(const std::vector<std::string>& cells, NpuSmi& out) {
  const auto first = words(cells[0]);
  const auto id = first.empty() ? std::nullopt : whole_number(first[0]);
  if (!id) return;
  if (cells[1].find(':') != std::string::npos) {  // the address on the bus
    if (out.chips.empty() || !out.chips.back().bus.empty()) return;
    out.chips.back().chip = *id;
    out.chips.back().bus = cells[1];
    read_memory(cells[2], out.chips.back());
  } else if (first.size() >= 2 && out.chips.size() < kMostRows) {
    out.chips.push_back({.npu = *id, .name = first[1], .health = cells[1], .bus = ""});
  }
}

void read_process_row(const std::vector<std::string>& cells, NpuSmi& out) {
  const auto where = words(cells[0]);
  const auto npu = where.empty() ? std::nullopt : whole_number(where[0]), pid = whole_number(cells[1]);
  if (!npu || !pid || out.processes.size() >= kMostRows) return;
  out.processes.push_back({*npu, where.size() > 1 ? whole_number(where[1]).value_or(0) : 0, *pid, cells[2],
                           cells.size() > 3 ? whole_number(cells[3]).value_or(0) : 0});
}

}  // namespace

NpuSmi parse_npu_smi(std::string_view text) {
  NpuSmi out;
  bool processes = false;
  for (const auto& line : split(text, '\n')) {
    const auto cells = table_cells(line);
    if (cells.empty()) continue;
    if (const auto at = cells[0].find("Version:"); at != std::string::npos && out.version.empty()) {
      const auto after = words(cells[0].substr(at + 8));
      if (!after.empty()) out.version = after[0];
    }
    if (line.find("Process id") != std::string::npos) processes = true;
    if (line.find("Phy-ID") != std::string::npos) out.physical_ids = true;
    if (cells.size() < 3) continue;
    if (processes) {
      read_process_row(cells, out);
    } else {
      read_chip_row(cells, out);
    }
  }
  return out;
}

}  // namespace npu_train::detail
