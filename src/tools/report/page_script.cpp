#include "tools/report/page_parts.hpp"

namespace npu_train::detail {

// The page is readable without the script, which adds sorting, filtering and the values under the pointer. It inserts text only by
// textContent.
const std::string_view kPageScript = R"js(
(() => {
'use strict';
const svgElement = (name, attributes) => {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
};

// All points with a tooltip, in units of the data's box.
function pointsOf(svg) {
  const points = [];
  for (const group of svg.querySelectorAll('.series')) {
    const at = group.querySelector('.line').getAttribute('d').match(/[\d.]+/g).map(Number);
    const color = getComputedStyle(group).getPropertyValue('--c');
    group.dataset.t.split('\n').forEach((text, i) => points.push({x: at[2 * i], y: at[2 * i + 1], name: group.dataset.name, text, color}));
  }
  for (const gap of svg.querySelectorAll('.gap'))
    points.push({x: parseFloat(gap.getAttribute('d').slice(1)), y: 25, name: '', text: gap.textContent, color: ''});
  for (const bar of svg.querySelectorAll('.bar')) {
    const [x, y, width] = ['x', 'y', 'width'].map(name => parseFloat(bar.getAttribute(name)));
    points.push({x: x + width / 2, y, name: '', text: bar.dataset.t, bar});
  }
  return points;
}

function pointing(area) {
  const svg = area.querySelector('.axes');
  const cursor = svgElement('line', {class: 'cursor', y1: '0', y2: '100%'}), focus = svgElement('circle', {class: 'focus', r: '5'});
  const tip = document.createElement('div');
  tip.className = 'tip';
  let points = null, last = null;
  const clear = () => {
    for (const element of [cursor, focus, tip]) element.remove();
    if (last && last.bar) last.bar.classList.remove('on');
    last = null;
  };
  const show = event => {
    points = points || pointsOf(svg);
    const box = svg.getBoundingClientRect();
    const scaleX = box.width / 1000, scaleY = box.height / 1000;
    const x = (event.clientX - box.left) / scaleX, y = (event.clientY - box.top) / scaleY;
    let best = null, nearest = Infinity;
    for (const point of points) {
      const dx = (point.x - x) * scaleX, dy = point.bar ? 0 : (point.y - y) * scaleY;
      const distance = dx * dx + dy * dy / 4;
      if (distance < nearest) [best, nearest] = [point, distance];
    }
    if (!best || best === last) return;
    clear();
    last = best;
    if (best.bar) {
      best.bar.classList.add('on');
    } else {
      for (const end of ['x1', 'x2']) cursor.setAttribute(end, best.x / 10 + '%');
      focus.setAttribute('cx', best.x / 10 + '%');
      focus.setAttribute('cy', best.y / 10 + '%');
      focus.style.setProperty('--c', best.color);
      svg.prepend(cursor);
      svg.append(focus);
    }
    tip.replaceChildren();
    if (best.name) {
      const name = document.createElement('b');
      name.textContent = best.name;
      tip.append(name);
    }
    tip.append(best.text);
    area.append(tip);
    const outer = area.getBoundingClientRect();
    const left = box.left - outer.left + best.x * scaleX, top = box.top - outer.top + best.y * scaleY;
    const place = left + 12 + tip.offsetWidth <= outer.width ? left + 12 : left - 12 - tip.offsetWidth;
    tip.style.left = Math.max(0, Math.min(place, outer.width - tip.offsetWidth)) + 'px';
    tip.style.top = Math.max(0, Math.min(top - tip.offsetHeight - 10, outer.height - tip.offsetHeight)) + 'px';
  };
  area.addEventListener('pointermove', show);
  area.addEventListener('pointerdown', show);
  area.addEventListener('pointerleave', clear);
}

// NaN above all numbers; cells without a value come last in both directions.
function compareValues(a, b, direction) {
  if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
  const [x, y] = [a, b].map(text => Number(text.replace('inf', 'Infinity')));
  if (Number.isNaN(x) || Number.isNaN(y)) return direction * (Number.isNaN(x) - Number.isNaN(y));
  return direction * ((x > y) - (x < y));
}

function tableTools(section) {
  const table = section.querySelector('table');
  if (!table) return;
  const bodies = [...table.tBodies], heads = [...table.tHead.rows[0].cells], rows = bodies.flatMap(body => [...body.rows]);
  const filter = section.querySelector('input'), count = section.querySelector('.count'), all = section.querySelector('.all');
  const texts = rows.map(row => row.textContent.toLowerCase());
  const collator = new Intl.Collator('en', {numeric: true});
  const shown = number => number.toLocaleString('en-US');
  let order = rows.map((_, i) => i);

  const update = () => {
    const wanted = filter ? filter.value.trim().toLowerCase() : '';
    const fitting = order.filter(i => texts[i].includes(wanted));
    const first = bodies.length > 1 ? 200 : rows.length;
    [fitting.slice(0, first), fitting.slice(first)].forEach((part, k) => {
      const fragment = document.createDocumentFragment();
      for (const i of part) fragment.append(rows[i]);
      if (bodies[k]) bodies[k].replaceChildren(fragment);
    });
    const visible = table.classList.contains('limited') ? Math.min(fitting.length, first) : fitting.length;
    if (all) all.hidden = visible === fitting.length;
    if (!count) return;
    const of = wanted ? `${shown(fitting.length)} matching of ${shown(rows.length)} rows` : `${shown(rows.length)} rows`;
    count.textContent = visible < fitting.length ? `first ${shown(visible)} of ${of}` : of;
  };
  const sortBy = column => {
    const head = heads[column], numeric = head.classList.contains('n');
    const first = numeric ? 'descending' : 'ascending', second = numeric ? 'ascending' : 'descending';
    const state = head.getAttribute('aria-sort');
    const next = state === first ? second : state === second ? null : first;  // the third click restores the original order
    for (const other of heads) other.removeAttribute('aria-sort');
    order = rows.map((_, i) => i);
    if (next) {
      head.setAttribute('aria-sort', next);
      const direction = next === 'ascending' ? 1 : -1;
      const values = rows.map(row => row.cells[column].dataset.v), words = rows.map(row => row.cells[column].textContent);
      const byValue = numeric || values.some(value => value !== undefined);
      order.sort((a, b) => byValue ? compareValues(values[a], values[b], direction) : direction * collator.compare(words[a], words[b]));
    }
    update();
  };
  heads.forEach((head, column) => head.firstElementChild.addEventListener('click', () => sortBy(column)));
  if (filter) filter.addEventListener('input', update);
  if (all) all.addEventListener('click', () => { table.classList.remove('limited'); update(); });
  update();
}

function galleryTools(section) {
  const items = [...section.querySelectorAll('.item')], count = section.querySelector('.count');
  if (!count) return;
  const select = section.querySelector('select'), filter = section.querySelector('input');
  const texts = items.map(item => item.textContent.toLowerCase());
  const shown = number => number.toLocaleString('en-US');
  const update = () => {
    const group = select ? select.value : '', wanted = filter ? filter.value.trim().toLowerCase() : '';
    let visible = 0;
    items.forEach((item, i) => {
      item.hidden = (group !== '' && item.dataset.g !== group) || !texts[i].includes(wanted);
      visible += !item.hidden;
    });
    count.textContent = visible < items.length ? `${shown(visible)} of ${shown(items.length)} images` : `${shown(items.length)} images`;
  };
  if (select) select.addEventListener('change', update);
  if (filter) filter.addEventListener('input', update);
  update();
}

// On a narrow screen the rows of a table that is too wide become blocks with the names of their columns.
function fitTables() {
  const tables = [...document.querySelectorAll('.scroll > table')];
  for (const table of tables) table.classList.remove('cards');
  if (innerWidth > 800) return;
  for (const table of tables.filter(table => table.parentElement.scrollWidth > table.parentElement.clientWidth)) {
    const names = [...table.tHead.rows[0].cells].map(head => head.textContent);
    for (const body of table.tBodies)
      for (const row of body.rows) names.forEach((name, i) => { row.cells[i].dataset.h = name; });
    table.classList.add('cards');
  }
}

// npu_tool serve loads the page again and again: the choices made in it stay. A file begins without any.
function keepChoices() {
  if (!location.protocol.startsWith('http')) return;
  const fields = [...document.querySelectorAll('section input, section select')], heads = [...document.querySelectorAll('th')];
  const all = [...document.querySelectorAll('.all')];
  const read = () => JSON.parse(sessionStorage.getItem('choices'));
  const before = read();
  if (before && before.shape === fields.length + '/' + heads.length) {
    fields.forEach((field, i) => {
      if (field.value === before.values[i]) return;
      field.value = before.values[i];
      field.dispatchEvent(new Event(field.tagName === 'SELECT' ? 'change' : 'input'));
    });
    heads.forEach((head, i) => {
      for (let k = 0; k < 2 && head.getAttribute('aria-sort') !== before.sorts[i]; ++k) head.firstElementChild.click();
    });
    all.forEach((button, i) => { if (before.all[i]) button.click(); });
    if (before.focus >= 0) fields[before.focus].focus({preventScroll: true});
  }
  addEventListener('pagehide', () => sessionStorage.setItem('choices', JSON.stringify({
    shape: fields.length + '/' + heads.length, values: fields.map(field => field.value), sorts: heads.map(head => head.getAttribute('aria-sort')),
    all: all.map(button => !button.closest('section').querySelector('table').classList.contains('limited')),
    focus: fields.indexOf(document.activeElement)})));
}

document.querySelectorAll('.area').forEach(pointing);
document.querySelectorAll('section.table').forEach(tableTools);
document.querySelectorAll('section.gallery').forEach(galleryTools);
keepChoices();
fitTables();
addEventListener('resize', fitTables);
})();
)js";

}  // namespace npu_train::detail
