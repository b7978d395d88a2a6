#include "tools/align/history_table.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/csv.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train::detail {
namespace {

constexpr size_t kMostCells = 16'000'000;
constexpr size_t kLongestName = 1'000;  // in bytes; limited because the name of a column is copied for each cell
constexpr JsonLimits kHistoryJson{.values = 16'000'000, .max_bytes = uint64_t{256} << 20};
constexpr std::array kPhaseColumns = {"phase", "mode", "split"};
constexpr std::array kLists = {"log_history", "history", "epochs", "logs", "metrics"};

bool is_array_of_objects(const Json& value) {
  return value.is_array() && !value.items("").empty() &&
         std::all_of(value.items("").begin(), value.items("").end(), [](const Json& item) { return item.is_object(); });
}

bool holds_lists(const Json& value) {
  return value.is_object() && std::any_of(value.members("").begin(), value.members("").end(),
                                          [](const auto& member) { return member.value.is_array() && !is_array_of_objects(member.value); });
}

class JsonHistory {
 public:
  JsonHistory(HistoryTable& table, const std::string& source) : table_(table), source_(source) {}

  void read(const Json& document) {
    if (is_array_of_objects(document)) return rows(document);
    if (document.is_object()) {
      for (const char* name : kLists) {
        const auto* list = document.find(name);
        table_.of_epochs = list != nullptr && std::string_view(name) == "epochs";
        if (table_.of_epochs && list->is_array() && list->items("").empty()) return end_of_run(document);
        if (list != nullptr && is_array_of_objects(*list)) return rows(*list);
        if (list != nullptr && holds_lists(*list)) return lists(*list);
      }
      if (holds_lists(document)) return lists(document);
      return row(document);
    }
    throw Error(ErrorKind::Data, "history", source_ + ": contains no list of steps",
                "it must contain a list of objects, an object of lists, or one object per line");
  }

  void row(const Json& object) {
    table_.add_row();
    members(object, "");
  }

 private:
  void rows(const Json& list) {
    for (const auto& item : list.items(source_)) row(item);
  }

  // Reads the history.json of a run that ended in its first epoch. It contains only the validation at the end of the run.
  void end_of_run(const Json& document) {
    const auto *final = document.find("final_val"), *step = document.find("global_step");
    const bool validated = final != nullptr && final->is_object() && final->find("loss") != nullptr && step != nullptr;
    check(validated, ErrorKind::Data, "history", source_, ": contains no epoch, since the run ended in its first one",
          "; hint: metrics.csv of the run's folder has its steps");
    table_.of_end = true;
    table_.add_row();
    cell("global_step", *step);
    members(*final, "");
    table_.notes.emplace_back("the run ended in its first epoch: the loss is the validation loss at its end");
  }

  void members(const Json& object, const std::string& prefix) {
    for (const auto& [key, value] : object.members(source_)) {
      check(prefix.size() + key.size() <= kLongestName, ErrorKind::Data, "history", source_, ": a name has ", prefix.size() + key.size(),
            " bytes; allowed: at most ", kLongestName);
      if (value.is_object())
        members(value, prefix + key + "/");
      else
        cell(prefix + key, value);
    }
  }

  void cell(const std::string& name, const Json& value) {
    switch (value.kind()) {
      case Json::Kind::Boolean:
        return table_.set(name, value.boolean(source_) ? 1 : 0);
      case Json::Kind::Integer:
      case Json::Kind::Number:
        return table_.set(name, value.number(source_));
      case Json::Kind::Text:
        return table_.set_text(name, value.text(source_));
      default:
        return;  // null means not measured; lists are ignored
    }
  }

  // Reads an object of lists: {"loss": [2.3, 2.1], "lr": [0.1, 0.1]}.
  void lists(const Json& object) {
    size_t rows = 0;
    for (const auto& [key, value] : object.members(source_))
      if (value.is_array()) rows = std::max(rows, value.items(source_).size());
    for (size_t i = 0; i < rows; ++i) table_.add_row();
    for (const auto& [key, value] : object.members(source_)) {
      if (!value.is_array()) continue;
      const auto& items = value.items(source_);
      for (size_t i = 0; i < items.size(); ++i) {
        table_.go_to(i);
        cell(key, items[i]);
      }
    }
    table_.numbered = true;
  }

  HistoryTable& table_;
  const std::string& source_;
};

// Returns the separator of a CSV file, by its header. If it is a semicolon, commas in numbers are decimal commas.
char separator_of(std::string_view text) {
  const auto header = text.substr(0, text.find_first_of("\r\n"));
  char best = ',';
  for (const char c : {';', '\t'})
    if (std::count(header.begin(), header.end(), c) > std::count(header.begin(), header.end(), best)) best = c;
  return best;
}

std::string with_decimal_point(std::string text) {
  const auto comma = text.find(',');
  if (comma != std::string::npos && text.find_first_of(".", 0) == std::string::npos && text.find(',', comma + 1) == std::string::npos)
    text[comma] = '.';
  return text;
}

void read_csv_rows(std::string_view text, const std::string& source, HistoryTable& table) {
  constexpr CsvLimits kLimits{.bytes = uint64_t{256} << 20, .cells = kMostCells};
  const char separator = separator_of(text);
  CsvTable csv;
  if (!text.empty() && text.back() != '\n' && text.back() != '\r') {
    const auto last_line = text.find_last_of("\r\n");
    try {
      csv = parse_csv(text, source, kLimits, separator);
      table.notes.push_back("the last row ends without a line end: its last number may be truncated");
    } catch (const Error&) {
      if (last_line == std::string_view::npos) throw;
      csv = parse_csv(text.substr(0, last_line + 1), source, kLimits, separator);
      table.notes.push_back("the last row is truncated and was omitted");
    }
  } else {
    csv = parse_csv(text, source, kLimits, separator);
  }
  std::vector<std::string> names;
  for (const auto& column : csv.columns) {
    names.emplace_back(trimmed_view(column));
    check(names.back().size() <= kLongestName, ErrorKind::Data, "history", source, ": a name has ", names.back().size(),
          " bytes; allowed: at most ", kLongestName);
  }
  for (const auto& row : csv.rows) {
    table.add_row();
    for (size_t i = 0; i < names.size(); ++i) table.set_text(names[i], separator == ';' ? with_decimal_point(row[i]) : row[i]);
  }
}

std::string_view next_line(std::string_view& rest) {
  const auto end = std::min(rest.find('\n'), rest.size());
  const auto line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return trimmed_view(line);
}

// Whether the text has several objects, each on its own line.
bool is_json_lines(std::string_view text, const std::string& source) {
  const auto line = next_line(text);
  const auto next = trimmed_view(text);
  if (next.empty() || next[0] != '{' || line.empty() || line.back() != '}') return false;
  try {
    return parse_json_prefix(line, source, kHistoryJson).complete;
  } catch (const Error&) {
    return false;
  }
}

void read_json_lines(std::string_view text, const std::string& source, HistoryTable& table) {
  JsonHistory reader(table, source);
  for (size_t number = 1; !text.empty(); ++number) {
    const auto line = next_line(text);
    if (line.empty()) continue;
    const auto where = source + ":" + std::to_string(number);
    const auto document = parse_json_prefix(line, where);
    if (!document.complete && trimmed_view(text).empty()) {
      table.notes.push_back("the last line is truncated and was omitted");
      return;
    }
    check(document.complete && document.value.is_object(), ErrorKind::Data, "history", where, ": not a complete JSON object",
          "; hint: in a JSON Lines file, each line must be one");
    reader.row(document.value);
  }
}

}  // namespace

void HistoryTable::set(const std::string& name, double value) {
  check(++cells_ <= kMostCells, ErrorKind::Data, "history", "more than ", with_commas(static_cast<int64_t>(kMostCells)),
        " numbers; hint: keep fewer columns or every n-th step");
  check(name.size() <= kLongestName, ErrorKind::Data, "history", "a name has ", name.size(), " bytes; allowed: at most ", kLongestName);
  auto found = index_.find(name);
  if (found == index_.end()) {
    found = index_.emplace(name, columns.size()).first;
    columns.push_back({name == "images_per_second" ? "samples_per_second" : name, {}});  // the former name in npu_train
    index_.emplace(columns.back().name, found->second);
  }
  auto& cells = columns[found->second].cells;
  if (!cells.empty() && cells.back().first == row_)
    cells.back().second = value;  // of two columns with the same name, the last one counts
  else
    cells.emplace_back(row_, value);
}

void HistoryTable::set_text(const std::string& name, std::string_view text) {
  const auto content = trimmed_view(text);
  if (content.empty()) return;
  if (const auto number = decimal_number(content)) return set(name, *number);
  if (std::find(kPhaseColumns.begin(), kPhaseColumns.end(), to_lower(name)) != kPhaseColumns.end())
    phases[row_] = to_lower(content.substr(0, 40));
  if (texts.size() < 100 && name.size() <= kLongestName && seen_texts_.emplace(name, true).second) texts.push_back(name);
}

const HistoryTable::Column* HistoryTable::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &columns[found->second];
}

HistoryTable parse_history(std::string_view text, const std::string& source) {
  HistoryTable table;
  if (const auto end = text.find_last_not_of('\0'); end + 1 < text.size()) {
    text = text.substr(0, end + 1);  // drops trailing bytes that a crash of the machine may have left
    table.notes.push_back("zero bytes at the end were ignored");
  }
  text.remove_prefix(start_of_text(text));
  const auto content = trimmed_view(text);
  check(!content.empty(), ErrorKind::Data, "history", source, ": is empty");
  if (content[0] != '{' && content[0] != '[') {
    read_csv_rows(text, source, table);
  } else if (is_json_lines(content, source)) {
    read_json_lines(content, source, table);
  } else {
    const auto document = parse_json_prefix(content, source, kHistoryJson);
    if (!document.complete) table.notes.push_back("the file is truncated; read up to its end");
    JsonHistory(table, source).read(document.value);
  }
  return table;
}

}  // namespace npu_train::detail
