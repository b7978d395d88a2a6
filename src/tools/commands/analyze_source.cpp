#include "analyze_source.hpp"

#include <optional>

#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/tools/report/page_origin.hpp"
#include "npu_train/tools/scan/rewrite.hpp"
#include "npu_train/tools/scan/scan_report.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {

int analyze_source(const SourceArguments& args) {
  check_writable({args.csv, args.html});
  const auto scan = scan_source(args.source);
  std::optional<Rewrite> rewrite;
  if (!args.rewrite.empty()) rewrite = rewrite_source(args.source, args.rewrite);
  if (!args.csv.empty()) write_file_atomic(args.csv, to_csv(scan));
  if (!args.html.empty()) write_page(args.html, to_html(scan));
  auto document = args.json ? to_json(scan) : Json();
  if (args.json && rewrite) document.set("rewrite", to_json(*rewrite));
  print(args.json, document, args.json ? "" : to_text(scan, args.rows, terminal_columns()) + (rewrite ? to_text(*rewrite) : ""));
  return scan.verdict == Feasibility::Blocked ? static_cast<int>(ErrorKind::CheckFailed) : 0;
}

}  // namespace npu_train::cli
