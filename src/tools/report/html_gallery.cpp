#include "tools/report/html_gallery.hpp"

#include <map>
#include <string_view>

#include "npu_train/core/text.hpp"
#include "npu_train/tools/report/visible_text.hpp"
#include "tools/report/html_table.hpp"

namespace npu_train::detail {
namespace {

constexpr size_t kWorthAChoice = 8;

// RFC 4648, section 4.
std::string base64(std::string_view bytes) {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::string picture_html(const HtmlGallery::Picture& picture, const std::string& title) {
  std::string out = "<figure>";
  if (!picture.file.empty()) {
    const bool png = picture.file.starts_with("\x89PNG");
    out += "<img src=\"data:image/" + std::string(png ? "png" : "jpeg") + ";base64," + base64(picture.file) + "\" width=\"" +
           std::to_string(picture.width * picture.scale) + "\" height=\"" + std::to_string(picture.height * picture.scale) + "\" alt=\"" +
           title + "\" decoding=\"async\"" + (picture.scale > 1 ? " class=\"pixels\"" : "") + ">";
  }
  if (!picture.lines.empty()) {
    out += "<figcaption>";
    for (const auto& [name, value] : picture.lines)
      out += "<div><span>" + escape_html(name) + "</span>" + (value.empty() ? "" : "<b>" + escape_html(value) + "</b>") + "</div>";
    out += "</figcaption>";
  }
  return out + "</figure>";
}

std::string item_html(const HtmlGallery::Item& item) {
  const auto title = escape_html(item.title);
  std::string out = "<div class=\"item" + std::string(item.pictures.size() > 1 ? " several" : "") + "\"" +
                    (item.group.empty() ? "" : " data-g=\"" + escape_html(item.group) + "\"") + ">";
  out += "<h4" + (item.tone == Tone::Plain ? "" : " class=\"" + tone_class(item.tone) + "\"") + ">" + title + "</h4>";
  for (const auto& picture : item.pictures) out += picture_html(picture, title);
  return out + "</div>\n";
}

// Returns a selector of the group, with all groups in alphabetical order and their counts; "" if there are fewer than two groups.
std::string choice_html(const HtmlGallery& gallery, const std::string& title) {
  std::map<std::string, int64_t> groups;
  for (const auto& item : gallery.items)
    if (!item.group.empty()) ++groups[item.group];
  if (groups.size() < 2) return "";
  std::string out = "<select aria-label=\"" + escape_html(gallery.group_name) + " of " + title +
                    "\" autocomplete=\"off\"><option value=\"\">all (" + with_commas(static_cast<int64_t>(gallery.items.size())) +
                    ")</option>";
  for (const auto& [group, count] : groups) {
    const auto name = escape_html(group);
    out += "<option value=\"" + name + "\">" + name + " (" + with_commas(count) + ")</option>";
  }
  return out + "</select>";
}

}  // namespace

std::string gallery_html(const HtmlGallery& gallery) {
  const auto title = escape_html(gallery.title.empty() ? "images" : gallery.title);
  std::string out = "<section class=\"gallery\">\n";
  if (!gallery.title.empty()) out += "<h3>" + title + "</h3>\n";
  if (gallery.items.empty()) return out + "<p class=\"nothing\">no images</p>\n</section>\n";
  const auto choice = choice_html(gallery, title);
  const bool many = gallery.items.size() > kWorthAChoice;
  if (many || !choice.empty()) {
    out += "<div class=\"tools\">" + choice;
    if (many)
      out += "<input type=\"search\" placeholder=\"Filter images\" aria-label=\"Filter the images of " + title +
             "\" autocomplete=\"off\" spellcheck=\"false\">";
    out += "<span class=\"count\" role=\"status\"></span></div>\n";
  }
  out += "<div class=\"items\">\n";
  for (const auto& item : gallery.items) out += item_html(item);
  return out + "</div>\n</section>\n";
}

}  // namespace npu_train::detail
