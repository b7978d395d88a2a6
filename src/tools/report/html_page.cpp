#include "npu_train/tools/report/html_page.hpp"

#include <array>
#include <ctime>
#include <string_view>

#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/core/host.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/tools/report/visible_text.hpp"
#include "tools/report/html_gallery.hpp"
#include "tools/report/html_table.hpp"
#include "tools/report/page_parts.hpp"

namespace npu_train {

using detail::escape_html;

namespace {

constexpr size_t kWideFact = 18, kFullFact = 40;

// Lets long names break after the characters that separate words, not inside a word.
std::string breakable(const std::string& text) {
  if (detail::code_points(text) <= kWideFact) return escape_html(text);
  std::string out, word;
  for (size_t i = 0; i < text.size(); ++i) {
    word += text[i];
    if (std::string_view("/_-.").find(text[i]) == std::string_view::npos || i + 1 == text.size()) continue;
    out += escape_html(word) + "<wbr>";
    word.clear();
  }
  return out + escape_html(word);
}

std::string width_of(const std::string& value) {
  const auto length = detail::code_points(value);
  return length > kFullFact ? " class=\"full\"" : length > kWideFact ? " class=\"wide\"" : "";
}

}  // namespace

HtmlPage::HtmlPage(std::string title) : title_(std::move(title)) {}

void HtmlPage::heading(const std::string& text) { add("<h2>" + escape_html(text) + "</h2>\n"); }

void HtmlPage::paragraph(const std::string& text, Tone tone) {
  add("<p" + (tone == Tone::Plain ? "" : " class=\"note " + detail::tone_class(tone) + "\"") + ">" + escape_html(text) + "</p>\n");
}

void HtmlPage::facts(const std::vector<Fact>& facts) {
  std::string out = "<dl class=\"facts\">\n";
  for (const auto& [name, value, tone] : facts) {
    out += "<div" + width_of(value) + "><dt>" + escape_html(name) + "</dt><dd" +
           (tone == Tone::Plain ? "" : " class=\"" + detail::tone_class(tone) + "\"") + ">" + breakable(value) + "</dd></div>\n";
  }
  add(out + "</dl>\n");
}

void HtmlPage::plot(const LinePlot& plot) { add_plot(to_html(plot)); }

void HtmlPage::bars(const BarPlot& plot) { add_plot(to_html(plot)); }

void HtmlPage::histogram(const Histogram& histogram) { add_plot(to_html(histogram)); }

void HtmlPage::table(const HtmlTable& table) { add(detail::table_html(table)); }

void HtmlPage::gallery(const HtmlGallery& gallery) { add(detail::gallery_html(gallery)); }

void HtmlPage::add(const std::string& html) {
  if (in_plots_) body_ += "</div>\n";
  in_plots_ = false;
  body_ += html;
}

void HtmlPage::add_plot(const std::string& html) {
  if (!in_plots_) body_ += "<div class=\"plots\">\n";
  in_plots_ = true;
  body_ += html;
}

std::string HtmlPage::str() const {
  const auto title = escape_html(title_);
  // A defence in case text ever bypasses the escaping: no resources are fetched, and only a script with the hash of the complete content
  // runs.
  const auto nonce = hex64(hash64(title + body_));
  std::string out = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out +=
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src "
      "'nonce-" +
      nonce + "'; base-uri 'none'; form-action 'none'\">\n";
  out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n";
  out += "<link rel=\"icon\" href=\"data:,\">\n<title>" + title + "</title>\n<style>\n";
  out += detail::kPageStyle;
  const auto script = "<script nonce=\"" + nonce + "\">";
  // The script comes before the body, so that the browser never lays out long tables completely.
  out += "</style>\n" + script + "document.documentElement.classList.add('js')</script>\n</head>\n<body>\n<main>\n<h1>" + title + "</h1>\n";
  out += body_ + (in_plots_ ? "</div>\n" : "") + "</main>\n" + script + "\n";
  out += detail::kPageScript;
  return out + "</script>\n</body>\n</html>\n";
}

PageOrigin PageOrigin::here() {
  const auto now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> date{};
  std::strftime(date.data(), date.size(), "%Y-%m-%d %H:%M UTC", &parts);
  return {date.data(), command_line(), NPU_TRAIN_VERSION};
}

std::string with_origin(const std::string& page, const PageOrigin& origin) {
  const auto end = page.rfind("</main>");
  check(end != std::string::npos, ErrorKind::Usage, "with_origin", "the text is not a page of HtmlPage");
  const auto text = [](const std::string& part) { return detail::escape_html(part); };
  return page.substr(0, end) + "<footer>\n" + (origin.command.empty() ? "" : "<p><code>" + text(origin.command) + "</code></p>\n") +
         "<p>npu_train " + text(origin.version) + " \u00b7 " + text(origin.date) + "</p>\n</footer>\n" + page.substr(end);
}

void write_page(const std::filesystem::path& path, const std::string& page) {
  write_file_atomic(path, with_origin(page, PageOrigin::here()));
}

}  // namespace npu_train
