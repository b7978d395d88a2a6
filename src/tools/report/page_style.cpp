#include "tools/report/page_parts.hpp"

namespace npu_train::detail {

// Text and strokes keep their size at every width: only the data box is stretched.
const std::string_view kPageStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #f5f6f8; --card: #ffffff; --text: #1b1f24; --muted: #5a6370; --line: #dfe3e8; --grid: #e9ecf0; --hover: #f3f5f8;
  --accent: #2456c9;
  --good: #0b6e43; --good-tint: #e1f4ea; --warn: #7d5200; --warn-tint: #fcf0d4; --bad: #b3162a; --bad-tint: #fce7e9;
  --s0: #2563eb; --s1: #d4500a; --s2: #0c8457; --s3: #8b35d6; --s4: #c21d63; --s5: #0a7f97; --s6: #8c6500; --s7: #56606c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #101316; --card: #181c20; --text: #e6e9ec; --muted: #9ba5b0; --line: #2e343b; --grid: #262c32; --hover: #20252a;
    --accent: #84adff;
    --good: #63d49c; --good-tint: #12342a; --warn: #efc164; --warn-tint: #392d10; --bad: #ff8f93; --bad-tint: #431d22;
    --s0: #6ea3ff; --s1: #ff9a57; --s2: #4bcf9c; --s3: #c79aff; --s4: #ff84b0; --s5: #48cfe3; --s6: #dfb640; --s7: #b1bac4;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", Arial, sans-serif;
  overflow-wrap: anywhere; }
main { max-width: 1160px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 27px; line-height: 1.25; font-weight: 650; letter-spacing: -.015em; margin: 0 0 20px; }
h2 { font-size: 19px; line-height: 1.3; font-weight: 650; letter-spacing: -.01em; margin: 44px 0 14px; }
h3, figcaption { font-size: 15px; line-height: 1.4; font-weight: 600; margin: 0 0 8px; }
p { max-width: 76ch; margin: 0 0 16px; }
.nothing { color: var(--muted); margin: 0; }
.note { padding: 10px 14px; border-left: 3px solid; border-radius: 4px 8px 8px 4px; max-width: none; }
.note.good { background: var(--good-tint); } .note.warn { background: var(--warn-tint); } .note.bad { background: var(--bad-tint); }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }

.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(184px, 1fr)); gap: 1px; margin: 0 0 20px; overflow: hidden;
  background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.facts div { padding: 12px 16px 13px; box-shadow: 1px 1px 0 var(--line); }
.facts .wide { grid-column: span 2; }
.facts .full { grid-column: 1 / -1; }
.facts dt { color: var(--muted); font-size: 12.5px; }
.facts dd { margin: 1px 0 0; font-size: 16px; line-height: 1.35; font-weight: 600; font-variant-numeric: tabular-nums; }

.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); gap: 16px; margin: 0 0 20px; }
.plot, .table, .gallery { background: var(--card); border: 1px solid var(--line); border-radius: 10px; margin: 0 0 20px; padding: 16px 18px;
  min-width: 0; }
.plot { margin: 0; padding-bottom: 12px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; list-style: none; margin: 0 0 8px; padding: 0; font-size: 13px;
  color: var(--muted); }
.legend li { position: relative; padding-left: 22px; }
.legend li::before { content: ""; position: absolute; left: 0; top: .78em; width: 15px; border-top: 2.5px solid var(--c); }
.legend li.dash::before { border-top-style: dotted; }
.legend li.lost { padding-left: 10px; }
.legend li.lost::before { left: 0; top: .35em; width: 0; height: .9em; border-top: 0; border-left: 2.5px solid var(--bad); }
.s0 { --c: var(--s0); } .s1 { --c: var(--s1); } .s2 { --c: var(--s2); } .s3 { --c: var(--s3); }
.s4 { --c: var(--s4); } .s5 { --c: var(--s5); } .s6 { --c: var(--s6); } .s7 { --c: var(--s7); }

.area { position: relative; touch-action: pan-y; }
.axes { display: block; width: 100%; height: 250px; overflow: visible; font-size: 12px; font-variant-numeric: tabular-nums; }
.axes text { fill: var(--muted); }
.axes .tick { stroke: var(--grid); }
.axes .floor { stroke: var(--muted); stroke-dasharray: 2 4; }
.axes line.mark { stroke: var(--muted); stroke-dasharray: 4 3; }
.axes text.mark { fill: var(--text); }
.data { overflow: visible; }
.data path { fill: none; vector-effect: non-scaling-stroke; stroke-linecap: round; stroke-linejoin: round; }
.line { stroke: var(--c); stroke-width: 1.75px; }
.dash .line { stroke-dasharray: 1 4; }
.dot { stroke: var(--c); stroke-width: 6px; }
.many .dot { stroke-width: 3.5px; }
.many .line { stroke-width: 1.4px; stroke-opacity: .8; }
.data .gap { stroke: var(--bad); stroke-width: 2.5px; stroke-linecap: butt; }
.bar { fill: var(--c, var(--s0)); stroke: var(--card); stroke-width: 1px; vector-effect: non-scaling-stroke; }
.bar.thin { stroke: none; }
.bar.lost { fill: var(--bad); }
.bar.on { fill: var(--text); }
.plot.wide { grid-column: 1 / -1; }
.unit { color: var(--muted); font-size: 13px; margin: 0 0 6px; }
.area + .unit { margin-top: 12px; }
.rows { list-style: none; margin: 0; padding: 0; font-size: 13px; line-height: 1.35; }
.rows li { display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 3fr) 5.5em; gap: 10px; align-items: center; padding: 2px 0; }
.rows .top { font-weight: 650; }
.rows.numbered .name { display: flex; }
.rows .name b { flex: none; width: 1.4em; color: var(--muted); }
.rows .track { background: var(--grid); border-radius: 2px; height: 11px; }
.rows i { display: block; height: 100%; min-width: 1px; border-radius: 2px; background: var(--c); }
.rows i.lost { background: var(--bad); }
.rows .value { text-align: right; font-variant-numeric: tabular-nums; }
.js .data { pointer-events: none; }
.cursor { stroke: var(--muted); opacity: .6; }
.focus { fill: var(--card); stroke: var(--c, var(--text)); stroke-width: 2.5px; }
.tip { position: absolute; z-index: 2; pointer-events: none; max-width: min(300px, 100%); padding: 5px 9px; border-radius: 6px;
  font-size: 12.5px; line-height: 1.4;
  color: var(--card); background: var(--text); }
.tip b { display: block; font-weight: 600; }

.tools { display: flex; flex-wrap: wrap; align-items: center; gap: 8px 14px; margin: 0 0 10px; }
.tools input, .tools select, .all, .scroll button { font: inherit; color: inherit; }
.tools input, .tools select { width: 260px; max-width: 100%; padding: 6px 10px; background: var(--page); border: 1px solid var(--line);
  border-radius: 7px; font-size: 14px; }
.tools input::placeholder { color: var(--muted); opacity: 1; }
.count { color: var(--muted); font-size: 13px; font-variant-numeric: tabular-nums; }
.table { padding-bottom: 8px; }
.scroll { overflow: auto; max-height: min(80vh, 760px); margin: 0 -18px; border-top: 1px solid var(--line); }
.scroll.complete { max-height: none; }
.scroll:last-child { margin-bottom: -8px; border-radius: 0 0 10px 10px; }
table { border-collapse: separate; border-spacing: 0; min-width: 100%; font-size: 13.5px; line-height: 1.45; }
th { position: sticky; top: 0; z-index: 1; padding: 0; background: var(--card); border-bottom: 1px solid var(--line); text-align: left;
  font-weight: 600; }
th button { display: block; width: 100%; padding: 8px 10px; border: 0; background: none; text-align: inherit; font-weight: inherit;
  overflow-wrap: break-word; cursor: pointer;
  color: var(--muted); }
th button::after { content: "\2195"; display: inline-block; width: 1.1em; text-align: right; opacity: .35; }
th[aria-sort] button { color: var(--text); }
th[aria-sort=ascending] button::after { content: "\2191"; opacity: 1; }
th[aria-sort=descending] button::after { content: "\2193"; opacity: 1; }
th button:hover { color: var(--text); background: var(--hover); }
td { padding: 6px 10px; border-bottom: 1px solid var(--grid); vertical-align: top; white-space: nowrap; }
td.text { white-space: normal; min-width: 14ch; }
td.long { white-space: normal; min-width: 24ch; }
th { white-space: normal; }
th:first-child button, td:first-child { padding-left: 18px; }
th:last-child button, td:last-child { padding-right: 18px; }
tbody:last-child tr:last-child td { border-bottom: 0; }
tbody tr:hover td { background: var(--hover); }
.n { text-align: right; font-variant-numeric: tabular-nums; }
td.n { white-space: nowrap; }
.scroll::-webkit-scrollbar { width: 12px; height: 12px; }
.scroll::-webkit-scrollbar-track { background: var(--hover); }
.scroll::-webkit-scrollbar-thumb { background: var(--muted); border: 3px solid var(--hover); border-radius: 6px; }
@supports not selector(::-webkit-scrollbar) { .scroll { scrollbar-color: var(--muted) var(--hover); } }
.scroll:has(.cards) { max-height: none; }
.cards, .cards tbody { display: block; }
.cards thead tr { display: flex; flex-wrap: wrap; }
.cards tr { display: block; padding: 6px 0; border-bottom: 1px solid var(--line); }
.cards thead, .cards th { position: static; }
.scroll .cards td:nth-child(n) { display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); gap: 10px; min-width: 0; padding: 2px 14px; border: 0;
  text-align: left; white-space: normal; }
.cards td::before { content: attr(data-h); color: var(--muted); }
.cards td > span { justify-self: start; }
.scroll .cards td:nth-child(n):empty { display: none; }
.items { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 168px), 1fr)); gap: 14px; align-items: start; }
.item { min-width: 0; padding: 10px; border: 1px solid var(--line); border-radius: 8px; background: var(--page); }
.item.several { grid-column: 1 / -1; display: flex; flex-wrap: wrap; gap: 8px 14px; }
.item[hidden] { display: none; }
.item h4 { flex: 1 0 100%; margin: 0 0 6px; font-size: 13px; line-height: 1.35; font-weight: 600; overflow-wrap: anywhere; }
.item figure { margin: 0; min-width: 0; max-width: 100%; }
.item img { display: block; max-width: 100%; height: auto; border-radius: 4px; }
.item img.pixels { image-rendering: pixelated; }
.item figcaption { margin: 6px 0 0; font-size: 12.5px; font-weight: 400; font-variant-numeric: tabular-nums; }
.item figcaption div { display: flex; justify-content: space-between; gap: 10px; }
.item figcaption span { min-width: 0; }
.item figcaption b { flex: none; max-width: 70%; font-weight: 600; }
footer { margin-top: 40px; padding-top: 14px; border-top: 1px solid var(--line); color: var(--muted); font-size: 13px; }
footer p { max-width: none; margin: 0 0 4px; }
code { font-family: ui-monospace, "SFMono-Regular", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .95em; }
.n + th:not(.n) button, .n + td:not(.n) { padding-left: 24px; }
td span { display: inline-block; margin: 0 -6px; padding: 0 6px; border-radius: 4px; }
td .good { background: var(--good-tint); } td .warn { background: var(--warn-tint); } td .bad { background: var(--bad-tint); }
.js .limited .rest { display: none; }
.all { display: none; margin: 10px 0 4px; padding: 6px 12px; background: var(--page); border: 1px solid var(--line); border-radius: 7px;
  font-size: 14px; cursor: pointer; }
.js .all { display: inline-block; }
.js .all[hidden] { display: none; }
.all:hover { border-color: var(--muted); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
th button:focus-visible, .scroll:focus-visible { outline-offset: -2px; }
html:not(.js) .tools, html:not(.js) th button::after { display: none; }

@media (max-width: 900px) {
  .rows li { grid-template-columns: minmax(0, 1fr) auto; gap: 2px 10px; }
  .rows .track { grid-column: 1 / -1; grid-row: 2; }
}
@media (max-width: 640px) {
  main { padding: 24px 14px 48px; }
  h1 { font-size: 22px; }
  h2 { font-size: 18px; margin-top: 34px; }
  .plot, .table, .gallery { padding-left: 14px; padding-right: 14px; }
  .items { grid-template-columns: repeat(auto-fill, minmax(min(100%, 140px), 1fr)); gap: 10px; }
  .scroll { margin-left: -14px; margin-right: -14px; }
  th:first-child button, td:first-child { padding-left: 14px; }
  .axes { height: 220px; font-size: 11.5px; }
  .facts { grid-template-columns: repeat(auto-fill, minmax(130px, 1fr)); }
  .facts div { padding: 10px 14px; }
  .facts dd { font-size: 15px; }
  .tools input, .tools select { width: 100%; font-size: 16px; }
}
@media print {
  .scroll { max-height: none; overflow: visible; }
  .tools, .all { display: none !important; }
  .plot, .facts, .item { break-inside: avoid; }
  .item img { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
)css";

}  // namespace npu_train::detail
