#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>

#include "engine/loggers/loggers.hpp"
#include "npu_train/core/append_file.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/logger.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::detail {
namespace {

class CsvLogger final : public Logger {
 public:
  std::string what() const override { return "metrics.csv"; }

  void begin(const LoggedRun& run) override {
    path_ = std::filesystem::path(run.dir) / "metrics.csv";
    columns_ = {"epoch", "step", "phase"};
    columns_.insert(columns_.end(), run.columns.begin(), run.columns.end());
    write_all(run.earlier_csv);
  }

  void log(const LoggedRow& row) override {
    std::exception_ptr failed;
    try {
      add_columns(row.values);
    } catch (const std::exception&) {  // the file keeps the columns that it has
      failed = std::current_exception();
    }
    auto line = str_cat(row.epoch, ',', row.step, ',', row.phase);
    for (size_t i = 3; i < columns_.size(); ++i) {  // the first three are epoch, step and phase
      line += ',';
      if (std::any_of(row.values.begin(), row.values.end(), [&](const auto& v) { return v.first == columns_[i]; }))
        line += shortest(scalar_or(row.values, columns_[i], std::nan("")));
    }
    if (!file_) file_.emplace(path_.string());
    file_->write(line + "\n");
    if (failed) std::rethrow_exception(failed);
  }

 private:
  void write_all(const std::string& rows) {
    write_file_atomic(path_, join(columns_, ",") + "\n" + rows);
    file_.reset();  // it refers to the replaced file
  }

  // Adds columns for names that the file does not have; earlier rows get empty cells.
  void add_columns(const Scalars& values) {
    const auto before = columns_.size();
    for (const auto& [name, value] : values)
      if (std::find(columns_.begin(), columns_.end(), name) == columns_.end()) columns_.push_back(name);
    if (columns_.size() == before) return;
    try {
      std::ifstream in(path_);
      check(in.is_open(), ErrorKind::Checkpoint, "output", path_.string(), ": cannot be opened to add columns");
      std::string text, line;
      std::getline(in, line);
      while (std::getline(in, line)) text += line + std::string(columns_.size() - before, ',') + "\n";
      write_all(text);
    } catch (...) {
      columns_.resize(before);
      throw;
    }
  }

  std::filesystem::path path_;
  std::vector<std::string> columns_;  // epoch, step and phase first
  std::optional<AppendFile> file_;
};

}  // namespace

std::shared_ptr<Logger> csv_logger() { return std::make_shared<CsvLogger>(); }

}  // namespace npu_train::detail
